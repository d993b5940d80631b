package node

import (
	"errors"
	"fmt"
	"os"
	"runtime"

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
	if err := tryNamespaces(); err != nil {
		return fmt.Errorf("full isolation: this environment does not let root make namespaces (%w); choose --isolation none", err)
	}
	if err := network.Try(); err != nil {
		return fmt.Errorf("full isolation: the kernel refuses a pod network (%w); choose --isolation none", err)
	}
	return nil
}

// tryNamespaces gives a thread namespaces of its own. The thread ends with them.
func tryNamespaces() error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		result <- unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET)
	}()
	return <-result
}
