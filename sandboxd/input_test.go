package sandboxd

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

// unread returns how many bytes of its input a process has not read.
func unread(t *testing.T, pid uint32) int {
	t.Helper()
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", pid), os.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	n, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// An input that waits for another request's has a deadline, too, and goes when its client
// does.
func TestInputWaitsForAnotherUntilItsDeadline(t *testing.T) {
	a := newAgent(t, Options{})
	gate := fifo(t)
	s := a.start(shell("read go < " + gate))
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- a.send(ctx, s.pid, stdin(strings.Repeat("x", 1<<20)), 0) }()
	eventually(t, "the other request writes", func() bool { return unread(t, s.pid) > 0 })
	second := make(chan error, 1)
	go func() { second <- a.send(t.Context(), s.pid, stdin("x"), 100) }()
	eventually(t, "the request that waits ends", func() bool { return len(second) == 1 })
	wantCode(t, "the request that waits", <-second, connect.CodeDeadlineExceeded)
	leave()
	wantCode(t, "the request that is left", <-left, connect.CodeCanceled)
	s.cancel()
	s.wait()
}
