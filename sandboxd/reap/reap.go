// Package reap is for the first process of a container: Run starts the real program,
// forwards signals to it, and reaps the processes that lose their parent. Because it runs in
// another process than the program, it does not reap children for which the program waits.
//
// It knows nothing about sandboxes. Package sandboxd calls Run if its process is PID 1.
package reap

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Run starts a program with this process's streams and environment, waits until it has
// ended, and returns its exit code: after a signal, 128 and the signal's number. Call it
// once, in a process that has no other children.
func Run(path string, args []string) (int, error) {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	defer signal.Stop(signals)
	child, err := os.StartProcess(path, args, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 1, fmt.Errorf("starting %s: %w", path, err)
	}
	pid := child.Pid
	defer func() { _ = child.Release() }()
	for received := range signals {
		sig, ok := received.(unix.Signal)
		switch {
		case !ok, sig == unix.SIGURG, sig == unix.SIGPIPE: // signals of the Go runtime
		case sig == unix.SIGCHLD:
			if code, ended := collect(pid); ended {
				return code, nil
			}
		default:
			_ = unix.Kill(pid, sig)
		}
	}
	return 1, nil
}

// collect reaps all processes that have ended and reports whether the program was among
// them. It continues the program if it was stopped: processes of the sandbox may run as the
// same user, and must not be able to stop the program.
func collect(program int) (code int, ended bool) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WUNTRACED, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return code, ended
		}
		if pid != program {
			continue
		}
		switch {
		case status.Exited():
			code, ended = status.ExitStatus(), true
		case status.Signaled():
			code, ended = 128+int(status.Signal()), true
		case status.Stopped():
			_ = unix.Kill(program, unix.SIGCONT)
		}
	}
}
