package files

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/users"
)

// openRegular opens a regular file for its contents, with the user's rights.
func openRegular(u users.User, path string, flags uint64) (f *os.File, err error) {
	err = u.Act(func() (err error) {
		f, err = open(path, flags, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = badRequest(fmt.Sprintf("path '%s' is a directory", path))
	case !info.Mode().IsRegular():
		err = badRequest(fmt.Sprintf("path '%s' is not a regular file", path))
	default:
		err = refuseKernel(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// open opens a file with this thread's rights. Links of procfs to what a process holds
// open (/proc/self/fd, cwd, root) are refused: they lead past the rights that the path
// there would need, and the process is this one. A FIFO is not waited for.
func open(path string, flags uint64, mode uint64) (*os.File, error) {
	how := &unix.OpenHow{Flags: flags | unix.O_CLOEXEC | unix.O_NONBLOCK, Mode: mode, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(unix.AT_FDCWD, path, how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOSYS): // gVisor, whose procfs is its own
			return os.OpenFile(path, int(how.Flags), os.FileMode(mode))
		default:
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}
