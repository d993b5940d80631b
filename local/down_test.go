package local

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// `down` signals no process but the `up` that holds the lock, whatever PID the lock's file has.
func TestDownSignalsNoOther(t *testing.T) {
	t.Parallel()
	bystander := exec.Command("sleep", "1000")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = bystander.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = bystander.Process.Kill()
		<-ended
	})
	pid := bystander.Process.Pid
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ holder, want string }{
		"a PID of another":        {fmt.Sprintf("%d 1\n", pid), "in another container"},
		"a PID without its start": {fmt.Sprintf("%d\n", pid), "in another container"},
		"a PID of none":           {fmt.Sprintf("%d 1\n", gone.Process.Pid), "in another container"},
		"a `down` that cleans":    {"", "a `down` is removing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newState(t.TempDir())
			unlock, err := s.lock(c.holder)
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			if what, err := Down(t.Context(), s.dir); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q, %v", what, err)
			}
			if startTime(pid) == "" {
				t.Error("another process was ended")
			}
		})
	}
}

// A holder that is what its lock says is signalled, also while it is dying.
func TestSignalTheHolder(t *testing.T) {
	t.Parallel()
	s := newState(t.TempDir())
	up := exec.Command("sleep", "1000")
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	pid := up.Process.Pid
	unlock, err := s.lock(fmt.Sprintf("%d %s\n", pid, startTime(pid)))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := s.signal(pid, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	for deadline := time.Now().Add(10 * time.Second); startTime(pid) != ""; { // then it is a zombie
		if time.Now().After(deadline) {
			_ = up.Process.Kill()
		}
	}
	if err := s.signal(pid, syscall.SIGKILL); err != nil {
		t.Error("a dying holder:", err)
	}
	var exit *exec.ExitError
	if err := up.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Error("it ended with", err)
	}
}
