package process

import (
	"os/exec"
	"sync/atomic"
	"testing"
)

// Both ways to wait return at the exit, whether it comes before or after the wait
// begins, and leave the child to be reaped.
func TestAwaitExit(t *testing.T) {
	polling := func(pid int) {
		if err := pollExit(pid); err != nil {
			t.Errorf("polling: %v", err)
		}
	}
	for name, await := range map[string]func(int){"polling": polling, "blocking": blockUntilExit} {
		for _, early := range []bool{false, true} {
			cmd := exec.Command("cat") // until its input ends
			input, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pid := cmd.Process.Pid
			if hasExited(pid) {
				t.Errorf("%s: it has exited before it did", name)
			}
			exited, waits := make(chan struct{}), make(chan struct{})
			var ended atomic.Bool // set before the child can end
			end := func() {
				ended.Store(true)
				_ = input.Close()
			}
			if early {
				end()
				blockUntilExit(pid)
			}
			go func() {
				close(waits)
				await(pid)
				if !ended.Load() {
					t.Errorf("%s: it returns before the exit", name)
				}
				close(exited)
			}()
			<-waits
			if !early {
				end()
			}
			<-exited
			if !hasExited(pid) {
				t.Errorf("%s: it has not exited when the wait is over", name)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%s: the child was reaped: %v", name, err)
			}
		}
	}
}
