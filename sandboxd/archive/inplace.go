package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Without root's rights (DAC_OVERRIDE) a sandbox may change its own file in a folder of
// another user, where it may neither remove nor make one. The file of the image is there
// in the fresh container too, and is changed in the same way. Its other names, which it
// shares with the image's, are in the archive as well: they changed with it.

// inPlace restores what is there already and cannot be removed; why says why.
func (x *extractor) inPlace(p place, h *tar.Header, content io.Reader, why error) error {
	fd, err := openat(p.fd, p.base, unix.O_PATH, 0)
	if err != nil {
		return why
	}
	defer func() { _ = unix.Close(fd) }()
	var is unix.Stat_t
	if err := unix.Fstat(fd, &is); err != nil {
		return err
	}
	kind := is.Mode & unix.S_IFMT
	switch {
	case h.Typeflag == tar.TypeReg && kind == unix.S_IFREG:
		return x.rewrite(fd, h, content)
	case h.Typeflag == tar.TypeLink && x.isLink(h, &is):
		return nil
	case h.Typeflag == tar.TypeFifo && kind == unix.S_IFIFO:
		return describe(p, h)
	case h.Typeflag == tar.TypeSymlink && kind == unix.S_IFLNK:
		if target, err := readlink(p.fd, p.base); err == nil && target == h.Linkname {
			return describe(p, h)
		}
	}
	return why
}

// rewrite replaces the content of a regular file, which fd names, and what describes it.
func (x *extractor) rewrite(fd int, h *tar.Header, content io.Reader) error {
	at := fmt.Sprintf("/proc/self/fd/%d", fd) // no path: it leads to this file alone
	if err := unix.Chmod(at, 0o600); err != nil {
		return err
	}
	open, err := unix.Open(at, unix.O_WRONLY|unix.O_TRUNC|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return x.complete(os.NewFile(uintptr(open), h.Name), h, content)
}

// isLink reports whether a file is the one that a hard link leads to.
func (x *extractor) isLink(h *tar.Header, is *unix.Stat_t) bool {
	at, err := x.pathOf(h.Linkname)
	if err != nil {
		return false
	}
	first, err := x.parent(at)
	if err != nil {
		return false
	}
	defer first.close()
	var stat unix.Stat_t
	err = unix.Fstatat(first.fd, first.base, &stat, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && stat.Dev == is.Dev && stat.Ino == is.Ino
}

// firstName is the first name that was written of a file with several.
type firstName struct {
	path  string
	fixed bool
}

// fixed reports whether names in an open folder stay as they are when this process
// restores it. One that it owns and that is in the archive is made writable.
func (a *writer) fixed(fd int, kept bool) bool {
	if !errors.Is(unix.Faccessat(fd, ".", unix.W_OK, unix.AT_EACCESS), unix.EACCES) {
		return false
	}
	var stat unix.Stat_t
	return !kept || unix.Fstat(fd, &stat) != nil || stat.Uid != a.owner.uid
}
