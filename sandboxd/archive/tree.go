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
	// Mounts are the mounts with the sandbox's files: "/", and others that belong to it.
	Mounts []Mount
	// Since is when the container started, by the clock from which the kernel takes the
	// times of files: that clock is behind by up to 10 ms.
	Since time.Time
	// Skip are files and folders of sandboxd itself, which are neither kept nor changed.
	Skip []string
}

// Mount is a part of the sandbox's files on one mount.
type Mount struct {
	// Path is absolute and clean.
	Path string
	// Whole: all its files are kept, also unchanged ones, because a fresh mount is empty.
	Whole bool
}

// ErrUnsupported: the kernel cannot open files without leaving a mount.
var ErrUnsupported = errors.New("this kernel has no openat2")

// resolve is how all files below a mount are opened.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// opened is a Tree with its mounts open.
type opened struct {
	Tree
	mounts []mount // the longest path first
}

type mount struct {
	Mount
	fd int
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
		o.mounts = append(o.mounts, mount{m, fd})
	}
	slices.SortFunc(o.mounts, func(a, b mount) int { return cmp.Compare(len(b.Path), len(a.Path)) })
	return o, nil
}

func (o *opened) close() error {
	var errs []error
	for _, m := range o.mounts {
		errs = append(errs, unix.Close(m.fd))
	}
	return errors.Join(errs...)
}

// apart reports whether a path does not belong to the folder around it, because it is
// sandboxd's own or a mount that is handled by itself.
func (o *opened) apart(p string) bool {
	return slices.Contains(o.Skip, p) || slices.ContainsFunc(o.mounts, func(m mount) bool { return m.Path == p })
}

// around reports whether a path is that of a folder with files of sandboxd itself.
func (o *opened) around(p string) bool {
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

// maxAgain bounds how many times opening a path is repeated after EAGAIN. A file on which a
// process has a lease cannot be opened until the lease is broken, which may take most of a
// minute: then this archive fails, and a later one succeeds.
const maxAgain = 100

// openat opens a path below a descriptor, without leaving its mount. The path may be longer
// than the kernel takes at once: a process in a deep folder can make files in it.
func openat(fd int, rel string, flags uint64, mode uint64) (int, error) {
	if len(rel) >= unix.PathMax {
		cut := strings.LastIndexByte(rel[:unix.PathMax-1], '/')
		if cut <= 0 {
			return -1, unix.ENAMETOOLONG
		}
		folder, err := openat(fd, rel[:cut], unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return -1, err
		}
		defer func() { _ = unix.Close(folder) }()
		return openat(folder, rel[cut+1:], flags, mode)
	}
	how := &unix.OpenHow{Flags: flags | unix.O_CLOEXEC | unix.O_NOFOLLOW, Mode: mode, Resolve: resolve}
	for tries := 0; ; tries++ {
		opened, err := unix.Openat2(fd, rel, how)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN) && tries < maxAgain: // an element of the path was moved meanwhile
		case errors.Is(err, unix.ENOSYS):
			return -1, ErrUnsupported
		default:
			return opened, err
		}
	}
}

const openFolder = unix.O_RDONLY | unix.O_DIRECTORY

// namesOf returns the names in an open folder, sorted, or ErrNames if they are more than an
// archive may have: the names of a folder that has more may not fit this process's memory.
func namesOf(fd int) (names []string, err error) {
	buf, size := make([]byte, 64<<10), 0
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return nil, err
	}
	for {
		n, err := unix.ReadDirent(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		case n == 0:
			slices.Sort(names)
			return names, nil
		}
		before := len(names)
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
		for _, name := range names[before:] {
			size += len(name) + 1
		}
		if size > maxNames {
			return nil, fmt.Errorf("%w: more than %d bytes", ErrNames, maxNames)
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
