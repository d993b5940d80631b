package kubetest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childEnv makes this test binary a child that waits to be interrupted.
const childEnv = "KUBETEST_CHILD"

// Whoever stops the tests with Ctrl-C finds no API server left behind.
func TestInterruptEndsTheControlPlane(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		Config(t)
		fmt.Println("etcd at", shared.EtcdURL())
		select {} // until the signal comes
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestInterruptEndsTheControlPlane$")
	child.Env = append(os.Environ(), childEnv+"=1")
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var etcd *url.URL
	for lines := bufio.NewScanner(out); etcd == nil && lines.Scan(); {
		if at, ok := strings.CutPrefix(lines.Text(), "etcd at "); ok {
			if etcd, err = url.Parse(at); err != nil {
				t.Fatal(err)
			}
		}
	}
	if etcd == nil {
		t.Fatalf("the child ended without a control plane: %v", child.Wait())
	}
	if err := child.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := child.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the child ended with %v, want exit code 1", err)
	}
	if c, err := net.DialTimeout("tcp", etcd.Host, time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("etcd at %s: connection %v, error %v; want it gone", etcd.Host, c, err)
	}
}
