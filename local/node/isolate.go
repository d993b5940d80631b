package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/local/node/network"
)

// CanIsolate tries, without leaving anything behind, whether this process may
// isolate pods fully. The error says in one line what is missing.
func CanIsolate() error {
	if runtime.GOOS != "linux" {
		return errors.New("full isolation needs Linux")
	}
	if os.Geteuid() != 0 {
		return errors.New("full isolation needs root: run as root, or choose --isolation none")
	}
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET,
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("full isolation: this environment does not let root make namespaces (%w); choose --isolation none", err)
	}
	if err := network.Try(); err != nil {
		return fmt.Errorf("full isolation: the kernel refuses a pod network (%w); choose --isolation none", err)
	}
	return nil
}
