package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/users"
)

// openRegular opens a regular file for reading, with the user's rights.
func openRegular(u users.User, path string) (f *os.File, err error) {
	err = u.Act(func() error {
		info, err := os.Stat(path)
		if err == nil {
			f, err = openKnown(path, info, unix.O_RDONLY)
		}
		return err
	})
	return f, err
}

// openKnown opens a file with this info, if it is a regular file: opening another kind of
// file may block, or change a device. It checks the opened file again, since the path may
// lead to another file by then. Call it with the user's rights.
func openKnown(path string, info fs.FileInfo, flags uint64) (*os.File, error) {
	if err := mustBeRegular(path, info); err != nil {
		return nil, err
	}
	f, err := open(path, flags, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = mustBeRegular(path, info)
	}
	if err == nil {
		err = refuseKernel(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func mustBeRegular(path string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return badRequest(fmt.Sprintf("path '%s' is a directory", path))
	case !info.Mode().IsRegular():
		return badRequest(fmt.Sprintf("path '%s' is not a regular file", path))
	}
	return nil
}

// open opens a file with this thread's rights. It refuses the links of procfs to files that a
// process has open (/proc/self/fd, cwd, root): they bypass the rights that the file's own
// path needs, and /proc/self is sandboxd's. It does not wait for the other end of a FIFO.
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
