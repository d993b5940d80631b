package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/kubetest"
)

// runEnv makes this test binary the sandlane command.
const runEnv = "SANDLANE_TEST_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(runEnv) != "" {
		main()
	}
	os.Exit(kubetest.Main(m))
}

// child is a sandlane that runs as a process of its own. done is closed when it
// has ended; only then err and output may be read.
type child struct {
	cmd    *exec.Cmd
	done   chan struct{}
	err    error
	output bytes.Buffer
}

// startChild starts one. It is killed at the end of the test, and what it said is
// shown if the test failed.
func startChild(t *testing.T, args ...string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0], args...), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), runEnv+"=1")
	c.cmd.Stdout, c.cmd.Stderr = &c.output, &c.output
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it ends with tests that panic
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.done
		if t.Failed() {
			t.Logf("%v said:\n%s", args, c.output.String())
		}
	})
	return c
}

// stop signals it and waits for its end. After SIGTERM that must be a clean one.
func (c *child) stop(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.done:
		if s == syscall.SIGTERM && c.err != nil {
			t.Errorf("told to stop, it ended with %v", c.err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("it does not end after %v", s)
	}
}

// running returns an error if it has ended.
func (c *child) running() error {
	select {
	case <-c.done:
		return fmt.Errorf("it has ended: %w", errors.Join(c.err, errors.New(c.output.String())))
	default:
		return nil
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// fetch returns the status and body of a GET on a connection of its own.
func fetch(url string) (int, string, error) {
	res, err := (&http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Get(url)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}
