package filesystem

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// removals says which entries this thread may remove from a directory: all, or in a sticky
// directory (such as /tmp) those that its user owns.
type removals struct {
	sticky    bool
	owner, me uint32
}

func (r removals) allow(owner uint32) bool {
	return !r.sticky || r.me == 0 || r.me == r.owner || r.me == owner
}

// removalsFrom returns the removals of a directory. It fails if this thread may remove
// nothing from it.
func removalsFrom(dir *os.File) (removals, error) {
	if err := refuseKernels(dir); err != nil {
		return removals{}, err
	}
	if err := unix.Faccessat(int(dir.Fd()), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return removals{}, &os.PathError{Op: "remove from", Path: dir.Name(), Err: err}
	}
	info, err := dir.Stat()
	if err != nil {
		return removals{}, err
	}
	return removals{
		sticky: info.Mode()&fs.ModeSticky != 0, owner: info.Sys().(*syscall.Stat_t).Uid,
		me: uint32(unix.Geteuid()), //nolint:gosec // 32 bits by definition
	}, nil
}

// open opens the file with this info. It fails if the name leads to another file by now, if
// the kernel generates the file, or if it is the top of a mount, which cannot be removed.
func (c *copier) open(name string, info fs.FileInfo, flags int) (*os.File, error) {
	f, err := c.from.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|flags, 0)
	if err != nil {
		return nil, err
	}
	now, err := f.Stat()
	if err == nil && !os.SameFile(now, info) {
		err = fmt.Errorf("%s was replaced while it was copied", name)
	}
	if err == nil {
		err = refuseKernels(f)
	}
	if err == nil {
		err = refuseMounts(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func refuseKernels(f *os.File) error {
	kernels, err := IsKernels(f)
	if kernels {
		err = &os.PathError{Op: "move", Path: f.Name() + ", which is the kernel's", Err: fs.ErrPermission}
	}
	return err
}

// refuseMounts refuses the top of a mount. If the kernel does not say what is one, it refuses
// the removal later.
func refuseMounts(f *os.File) error {
	var stat unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, 0, &stat)
	if err == nil && stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return &os.PathError{Op: "move", Path: f.Name() + ", where something is mounted", Err: unix.EBUSY}
	}
	return nil
}
