package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Tree says which files of a sandbox are kept.
type Tree struct {
	// Base is the folder that paths are below; empty means the root. For tests.
	Base string
	// Mounts have the files: "/", and what is mounted there and belongs to the sandbox.
	Mounts []Mount
	// Since is a time shortly before the container started: the kernel takes the times of
	// files from a clock that may be some milliseconds behind.
	Since time.Time
	// Skip are files and folders that are sandboxd's own: neither kept nor changed.
	Skip []string
}

// Mount is a part of the sandbox's files on one mount.
type Mount struct {
	// Path is absolute and clean.
	Path string
	// Whole: all of it is kept, whenever it was changed, since a fresh one is empty.
	Whole bool
}

// ErrUnsupported says that the kernel cannot open files in a way that does not leave a mount.
var ErrUnsupported = errors.New("this kernel has no openat2")

// resolve is how everything is opened below a mount.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// opened is a Tree with its mounts open.
type opened struct {
	Tree
	mounts []mount // the longest path first
}

type mount struct {
	Mount
	fd   int
	root inode
	// again: the same folder is mounted at an outer path too, where its files are kept.
	again bool
}

func (t Tree) open() (*opened, error) {
	o := &opened{Tree: t}
	for _, m := range t.Mounts {
		if !path.IsAbs(m.Path) || path.Clean(m.Path) != m.Path {
			return nil, errors.Join(fmt.Errorf("mount %q: not an absolute, clean path", m.Path), o.close())
		}
		fd, err := unix.Open(t.Base+m.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open mount %s: %w", m.Path, err), o.close())
		}
		o.mounts = append(o.mounts, mount{Mount: m, fd: fd})
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil {
			return nil, errors.Join(fmt.Errorf("look at mount %s: %w", m.Path, err), o.close())
		}
		o.mounts[len(o.mounts)-1].root = inode{stat.Dev, stat.Ino}
	}
	slices.SortStableFunc(o.mounts, func(a, b mount) int { return cmp.Compare(len(b.Path), len(a.Path)) })
	o.markAgain()
	return o, nil
}

// markAgain has each folder kept once that is mounted at several paths, as an emptyDir may
// be: restoring its files at the second path would replace those of the first.
func (o *opened) markAgain() {
	for i := range o.mounts {
		again := &o.mounts[i]
		for j := len(o.mounts) - 1; j > i; j-- { // the outer ones first
			if first := &o.mounts[j]; first.root == again.root {
				again.again = true
				first.Whole = first.Whole || again.Whole
				break
			}
		}
	}
}

func (o *opened) close() error {
	var errs []error
	for _, m := range o.mounts {
		errs = append(errs, unix.Close(m.fd))
	}
	return errors.Join(errs...)
}

// apart reports whether a path is no part of the files around it: sandboxd's own, or a
// mount that is looked at by itself.
func (o *opened) apart(p string) bool {
	return slices.Contains(o.Skip, p) || slices.ContainsFunc(o.mounts, func(m mount) bool { return m.Path == p })
}

// isReadOnly reports whether nothing can be written where a file is.
func isReadOnly(fd int) (bool, error) {
	var stat unix.Statfs_t
	err := unix.Fstatfs(fd, &stat)
	return stat.Flags&unix.ST_RDONLY != 0, err
}

// aroundOwn reports whether sandboxd's own files are somewhere below a path. No restore
// removes that: they are there before it.
func (o *opened) aroundOwn(p string) bool {
	return slices.ContainsFunc(o.Skip, func(skip string) bool { return strings.HasPrefix(skip, p+"/") })
}

// locate returns the mount that a path is on, and the path from there.
func (o *opened) locate(p string) (m mount, rel string, err error) {
	for _, m := range o.mounts {
		switch {
		case p == m.Path:
			return m, ".", nil
		case m.Path == "/":
			return m, p[1:], nil
		case strings.HasPrefix(p, m.Path+"/"):
			return m, p[len(m.Path)+1:], nil
		}
	}
	return mount{}, "", fmt.Errorf("%s is on no mount that is kept", p)
}

// maxAgain bounds how often a path is opened anew that the kernel could not follow. One
// that a process has a lease on is not opened before the lease is broken, which may take
// most of a minute: that is for the next archive.
const maxAgain = 100

// openat opens a path below a descriptor, without leaving its mount. The path may be longer
// than the kernel takes at once: it is opened piece by piece then.
func openat(fd int, rel string, flags uint64, mode uint64) (int, error) {
	at := fd
	for len(rel) >= unix.PathMax {
		end := strings.LastIndexByte(rel[:unix.PathMax], '/')
		if end <= 0 {
			break // no name is as long: the kernel says so
		}
		next, err := openPiece(at, rel[:end], unix.O_PATH|unix.O_DIRECTORY, 0)
		if at != fd {
			_ = unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at, rel = next, rel[end+1:]
	}
	opened, err := openPiece(at, rel, flags, mode)
	if at != fd {
		_ = unix.Close(at)
	}
	return opened, err
}

// openPiece opens a path that the kernel takes at once.
func openPiece(fd int, rel string, flags uint64, mode uint64) (int, error) {
	how := &unix.OpenHow{Flags: flags | unix.O_CLOEXEC | unix.O_NOFOLLOW, Mode: mode, Resolve: resolve}
	for tries := 0; ; tries++ {
		opened, err := unix.Openat2(fd, rel, how)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN) && tries < maxAgain: // something was moved meanwhile
		case errors.Is(err, unix.ENOSYS):
			return -1, ErrUnsupported
		default:
			return opened, err
		}
	}
}

const openFolder = unix.O_RDONLY | unix.O_DIRECTORY

// namesOf are the names in an open folder.
func namesOf(fd int) (names []string, err error) {
	err = eachName(fd, func(name string) error {
		names = append(names, name)
		return nil
	})
	slices.Sort(names)
	return names, err
}

// eachName calls f with each name in an open folder, in no order, until it fails.
func eachName(fd int, f func(name string) error) error {
	buf := make([]byte, 64<<10)
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return err
	}
	var names []string
	for {
		n, err := unix.ReadDirent(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return nil
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}
	}
}

// untilDone reads until the context ends.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (r untilDone) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
