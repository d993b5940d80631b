// Package reap is the first process of a container: it starts the real program,
// hands on signals, and reaps what loses its parent. Being another process than
// the program keeps it from reaping children that the program waits for.
//
// It knows nothing of sandboxes. Package sandboxd calls it when it is PID 1.
package reap

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Run starts a program with this process's streams and environment, and returns
// its exit code when it has ended: 128 and the signal's number after a signal. It
// must be called once, in a process that has no other children.
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
		case !ok, sig == unix.SIGURG, sig == unix.SIGPIPE: // the runtime's own
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

// collect reaps all that has ended and reports whether the program was among it. If the
// program was stopped it goes on: what loses its parent may run as the same user, and
// must not be rid of it so.
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
