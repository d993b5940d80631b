package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// regular writes a regular file.
func (a *writer) regular(dir int, e entry) error {
	fd, err := openat(dir, e.name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", e.path, err)
	}
	file := os.NewFile(uintptr(fd), e.path)
	defer func() { _ = file.Close() }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("look at %s: %w", e.path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%s: %w", e.path, ErrChanging)
	}
	if err := a.header(fd, e.path, &stat, ""); err != nil {
		return err
	}
	n, err := io.CopyN(a.tar, untilDone{a.ctx, file}, stat.Size)
	if errors.Is(err, io.EOF) && n < stat.Size {
		err = ErrChanging
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", e.path, err)
	}
	return nil
}

// header writes the header of a file; fd is -1 for what has no attributes to keep.
func (a *writer) header(fd int, at string, stat *unix.Stat_t, link string) error {
	if !a.owner.restores(stat) {
		return fmt.Errorf("%s, of user %d: %w", at, stat.Uid, ErrRights)
	}
	if !a.imageFolder(stat) && !a.owner.restoresMode(stat) {
		return fmt.Errorf("%s, of group %d: %w", at, stat.Gid, ErrMode)
	}
	h := &tar.Header{
		Name: relative(at), Linkname: link, Format: tar.FormatPAX,
		Mode: int64(stat.Mode & 0o7777), Uid: int(stat.Uid), Gid: int(stat.Gid), ModTime: time.Unix(stat.Mtim.Unix()),
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Typeflag = tar.TypeDir
	case unix.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	default:
		h.Typeflag, h.Size = tar.TypeReg, stat.Size
	}
	if fd >= 0 {
		var err error
		if h.PAXRecords, err = xattrs(fd); err != nil {
			return fmt.Errorf("the attributes of %s: %w", at, err)
		}
		if h.PAXRecords[xattrRecord+xattrCaps] != "" && !a.owner.setsCaps {
			return fmt.Errorf("%s: %w", at, ErrFileCaps)
		}
	}
	if err := a.tar.WriteHeader(h); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// keptXattr reports whether an attribute is kept: what programs set, and what says who
// may use the file. Others belong to the machine's file system.
func keptXattr(name string) bool {
	switch name {
	case xattrCaps, "system.posix_acl_access", "system.posix_acl_default":
		return true
	}
	return strings.HasPrefix(name, "user.")
}

// xattrs are the attributes of an open file, as tar has them.
func xattrs(fd int) (map[string]string, error) {
	list, err := sized(func(buf []byte) (int, error) { return unix.Flistxattr(fd, buf) })
	if err != nil || len(list) == 0 {
		return nil, ignoreUnsupported(err)
	}
	all, total := map[string]string{}, 0
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if !keptXattr(name) {
			continue
		}
		value, err := sized(func(buf []byte) (int, error) { return unix.Fgetxattr(fd, name, buf) })
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if total += len(name) + len(value); total > maxXattrs {
			return nil, fmt.Errorf("more than %d bytes", maxXattrs)
		}
		all[xattrRecord+url.QueryEscape(name)] = string(value) // a record's name has no =
	}
	return all, nil
}

func ignoreUnsupported(err error) error {
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENODATA) {
		return nil
	}
	return err
}

// sized calls a function that fills a buffer with one that is large enough.
func sized(fill func([]byte) (int, error)) ([]byte, error) {
	for {
		n, err := fill(nil)
		if err != nil || n == 0 {
			return nil, err
		}
		buf := make([]byte, n)
		n, err = fill(buf)
		if errors.Is(err, unix.ERANGE) {
			continue
		}
		return buf[:max(n, 0)], err
	}
}
