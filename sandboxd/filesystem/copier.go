package filesystem

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// copier copies one entry and all entries below it, if all of them can be removed
// afterwards. It keeps kinds, modes, times, extended attributes, hard links among the
// entries, and holes in files; and owners if its thread may give files away. It has the
// rights of its thread, and follows no symbolic link out of the two directories. One
// goroutine uses it.
type copier struct {
	ctx      context.Context
	from, to *os.Root
	links    map[inode]string // the copy of each file that has several names
}

type inode struct{ dev, ino uint64 }

// start copies the entry of a name in c.from to a name in c.to that is free.
func (c *copier) start(from, to string) error {
	dir, err := c.from.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	may, err := removalsFrom(dir)
	if err != nil {
		return err
	}
	return c.copy(may, from, to)
}

// copy copies one entry of a directory. may says which entries this thread may remove there.
func (c *copier) copy(may removals, from, to string) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	info, err := c.from.Lstat(from)
	if err != nil {
		return err
	}
	stat := info.Sys().(*syscall.Stat_t)
	if !may.allow(stat.Uid) {
		return &os.PathError{Op: "remove", Path: from, Err: unix.EPERM}
	}
	id := inode{uint64(stat.Dev), stat.Ino} //nolint:unconvert // 32 bits on some processors
	if first, known := c.links[id]; known {
		return c.to.Link(first, to)
	}
	if !info.IsDir() && stat.Nlink > 1 {
		c.links[id] = to
	}
	switch {
	case info.IsDir():
		err = c.directory(from, to, info)
	case info.Mode().IsRegular():
		err = c.file(from, to, info)
	case info.Mode()&fs.ModeSymlink != 0:
		err = c.symlink(from, to)
	default:
		err = c.node(to, stat)
	}
	if err != nil {
		return err
	}
	return c.finish(to, info, stat)
}

// finish gives a copy its owner, mode and times.
func (c *copier) finish(to string, info fs.FileInfo, stat *syscall.Stat_t) error {
	mode := info.Mode()
	made, err := c.to.Lstat(to)
	if err != nil {
		return err
	}
	if own := made.Sys().(*syscall.Stat_t); own.Uid != stat.Uid || own.Gid != stat.Gid {
		err = c.to.Lchown(to, int(stat.Uid), int(stat.Gid)) // takes capabilities from a program
	}
	if errors.Is(err, fs.ErrPermission) && unix.Geteuid() != 0 {
		mode &^= fs.ModeSetuid | fs.ModeSetgid // which are about the owner
		err = nil
	}
	if err != nil {
		return err
	}
	accessed, modified := time.Unix(stat.Atim.Unix()), info.ModTime()
	if mode&fs.ModeSymlink == 0 {
		if err := c.to.Chmod(to, mode); err != nil {
			return err
		}
		return c.to.Chtimes(to, accessed, modified)
	}
	return c.beside(to, func(dir int, name string) error {
		times := []unix.Timespec{unix.NsecToTimespec(accessed.UnixNano()), unix.NsecToTimespec(modified.UnixNano())}
		return unix.UtimesNanoAt(dir, name, times, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// beside calls fn with the open directory of a copy and its name there, for operations that
// os.Root does not have.
func (c *copier) beside(to string, fn func(dir int, name string) error) error {
	dir, err := c.to.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if err := fn(int(dir.Fd()), filepath.Base(to)); err != nil {
		return &os.PathError{Op: "copy", Path: to, Err: err}
	}
	return nil
}

func (c *copier) directory(from, to string, info fs.FileInfo) error {
	dir, err := c.open(from, info, unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	if err := c.to.Mkdir(to, 0o700); err != nil {
		return err
	}
	var may removals
	if len(names) > 0 {
		if may, err = removalsFrom(dir); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := c.copy(may, filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	made, err := c.to.Open(to)
	if err != nil {
		return err
	}
	defer func() { _ = made.Close() }()
	return copyAttributes(dir, made)
}

func (c *copier) file(from, to string, info fs.FileInfo) error {
	source, err := c.open(from, info, 0)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	made, err := c.to.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = copyContent(c.ctx, source, made)
	if err == nil {
		err = copyAttributes(source, made)
	}
	return errors.Join(err, made.Close())
}

func (c *copier) symlink(from, to string) error {
	target, err := c.from.Readlink(from)
	if err != nil {
		return err
	}
	return c.to.Symlink(target, to)
}

// node makes a FIFO, a socket or, as root, a device.
func (c *copier) node(to string, stat *syscall.Stat_t) error {
	return c.beside(to, func(dir int, name string) error {
		return unix.Mknodat(dir, name, stat.Mode&unix.S_IFMT|0o600, int(stat.Rdev)) //nolint:gosec // a device's number
	})
}
