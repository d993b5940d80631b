package process

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// awaitExit returns when a child of this process has exited, and does not reap it.
//
// All waits share the runtime's network poller: each is a pidfd in it and a parked
// goroutine, not a thread in waitid. A sandbox may run thousands of commands, and the
// runtime ends a process of 10,000 threads.
func awaitExit(pid int) {
	if err := pollExit(pid); err != nil {
		// There is no pidfd before Linux 5.10, or in a container that refuses the call. One
		// thread for each command is better than not knowing its end.
		blockUntilExit(pid)
	}
}

// pollExit waits with a pidfd, which becomes readable when the process exits.
func pollExit(pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("opening a pidfd: %w", err)
	}
	file := os.NewFile(uintptr(fd), "pidfd") // not blocking, and so given to the poller
	defer func() { _ = file.Close() }()
	conn, err := file.SyscallConn()
	if err != nil {
		return fmt.Errorf("polling a pidfd: %w", err)
	}
	if err := conn.Read(func(uintptr) bool { return hasExited(pid) }); err != nil {
		return fmt.Errorf("polling a pidfd: %w", err)
	}
	return nil
}

func blockUntilExit(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// hasExited asks the kernel whether a child of this process has exited. It must not
// have been reaped.
func hasExited(pid int) bool {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		if err != unix.EINTR {
			// An error says that there is no such child: nothing is left to wait for.
			return err != nil || info.Signo != 0
		}
	}
}
