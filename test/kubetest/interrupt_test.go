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

// No API server is left behind by tests that were stopped with Ctrl-C, nor by those
// that end without cleaning up: by a panic, by the timeout of go test, by SIGKILL.
func TestTheControlPlaneEndsWithItsTests(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		Config(t)
		fmt.Println("etcd at", shared.EtcdURL())
		select {} // until the signal comes
	}
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) { endsWith(t, signal) })
	}
}

func endsWith(t *testing.T, signal syscall.Signal) {
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTheControlPlaneEndsWithItsTests$")
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
	if err := child.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := child.Wait(); !errors.As(err, &exit) || (signal == syscall.SIGINT && exit.ExitCode() != 1) {
		t.Errorf("the child ended with %v, want exit code 1 if it was interrupted", err)
	}
	limit := time.Minute
	if signal == syscall.SIGINT {
		limit = 0 // the child has waited for it
	}
	Within(t, limit, "etcd is gone", func() error {
		c, err := net.DialTimeout("tcp", etcd.Host, time.Second)
		if err == nil {
			_ = c.Close()
			return errors.New("it answers at " + etcd.Host)
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		return nil
	})
}
