package supervise

import (
	"errors"

	"golang.org/x/sys/unix"
)

// waitExited returns when the child has ended, without reaping it: its PID
// stays taken until then.
func waitExited(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
