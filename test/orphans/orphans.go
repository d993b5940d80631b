// Package orphans stops what a test process started if it ends without doing so
// itself: by a panic, by the timeout of go test, by SIGKILL. Programs that outlive a
// test keep its ports, its memory and its network namespaces until someone looks.
//
// A shell of its own session reads from a pipe whose other end this process alone
// holds. When the process ends, however it ends, the shell reads the end of the file
// and runs what it was given. It is called by test/stack and test/kubetest.
package orphans

import (
	"fmt"
	"os/exec"
	"syscall"
)

// Stop has the program run with these arguments when this process has ended, unless
// forget was called before. Call forget once, after what it would have stopped has
// been stopped.
func Stop(program string, args ...string) (forget func(), err error) {
	shell := exec.Command("/bin/sh", append([]string{"-c", `read -r stopped || exec "$0" "$@"`, program}, args...)...)
	// A Ctrl-C goes to all processes of a terminal's group, and this one has work to
	// do after it.
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := shell.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("watching over what the test starts: %w", err)
	}
	if err := shell.Start(); err != nil {
		return nil, fmt.Errorf("watching over what the test starts: %w", err)
	}
	return func() {
		_, _ = pipe.Write([]byte("stopped\n"))
		_ = pipe.Close()
		_ = shell.Wait()
	}, nil
}
