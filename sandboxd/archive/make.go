package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// modeOf are the permission bits of an entry.
func modeOf(h *tar.Header) uint32 { return uint32(h.Mode) & 0o7777 } //nolint:gosec // bits

// makeFolder makes a folder, or takes one that is there.
func (x *extractor) makeFolder(p place, at string, h *tar.Header) error {
	fd, err := openat(p.fd, p.base, openFolder, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		if err := x.remove(p.fd, p.base, at, 0); err != nil {
			return err
		}
		if err := unix.Mkdirat(p.fd, p.base, 0o700); err != nil {
			return err
		}
		fd, err = openat(p.fd, p.base, openFolder, 0)
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := own(fd, h); err != nil {
		return err
	}
	if err := letFill(fd, h); err != nil {
		return err
	}
	if err := setXattrs(fd, h); err != nil {
		return err
	}
	if err := letFill(fd, h); err != nil { // an ACL among the attributes sets the mode
		return err
	}
	x.folders = append(x.folders, folder{path: at, mode: modeOf(h), at: h.ModTime})
	return nil
}

// letFill gives a folder a mode in which its owner, which this process may be without
// root's rights, can fill it and set its attributes. Of another owner's the mode stays;
// finish sees that it is the right one.
func letFill(fd int, h *tar.Header) error {
	if err := setMode(fd, modeOf(h)|0o700); err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	return nil
}

// makeFile makes a regular file where nothing is.
func (x *extractor) makeFile(p place, h *tar.Header, content io.Reader) error {
	fd, err := openat(p.fd, p.base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return x.complete(os.NewFile(uintptr(fd), h.Name), h, content)
}

// complete fills an open, empty file, gives it what describes it, and closes it.
func (x *extractor) complete(file *os.File, h *tar.Header, content io.Reader) error {
	fd := int(file.Fd())
	err := x.fill(file, untilDone{x.ctx, content}, h.Size)
	if err == nil {
		err = own(fd, h)
	}
	if err == nil { // after the owner, a change of which takes them away
		err = setXattrs(fd, h)
	}
	if err == nil { // after the attributes, which need a mode that lets them be set
		err = setMode(fd, modeOf(h))
	}
	if err == nil {
		err = setTime(fd, h.ModTime)
	}
	return errors.Join(err, file.Close())
}

// holeSize is the least of zeros that becomes a hole.
const holeSize = 64 << 10

var zeros [holeSize]byte

// fill writes the content of a file. Zeros become holes: a file that had some must not
// take more room than it did, which may be more than the container has.
func (x *extractor) fill(file *os.File, content io.Reader, size int64) error {
	if x.buf == nil {
		x.buf = make([]byte, holeSize)
	}
	for at := int64(0); at < size; {
		part := x.buf[:min(holeSize, size-at)]
		if _, err := io.ReadFull(content, part); err != nil {
			return err
		}
		if !bytes.Equal(part, zeros[:len(part)]) {
			if _, err := file.WriteAt(part, at); err != nil {
				return err
			}
		}
		at += int64(len(part))
	}
	return file.Truncate(size) // which the last part may have left out
}

// makeLink makes a further name of a file that the archive has restored.
func (x *extractor) makeLink(p place, h *tar.Header) error {
	first, err := x.pathOf(h.Linkname)
	if err != nil {
		return err
	}
	from, err := x.parent(first)
	if err != nil {
		return err
	}
	defer from.close()
	return unix.Linkat(from.fd, from.base, p.fd, p.base, 0)
}

// describe sets the owner, mode and time of what cannot be opened.
func describe(p place, h *tar.Header) error {
	if err := unix.Fchownat(p.fd, p.base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeSymlink { // links have no mode; it was made here, as no link
		if err := unix.Fchmodat(p.fd, p.base, modeOf(h), 0); err != nil {
			return err
		}
		var is unix.Stat_t
		if err := unix.Fstatat(p.fd, p.base, &is, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if err := sameMode(&is, modeOf(h)); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(p.fd, p.base, timesOf(h.ModTime), unix.AT_SYMLINK_NOFOLLOW)
}

func timesOf(at time.Time) []unix.Timespec {
	t := unix.Timespec{Sec: at.Unix(), Nsec: int64(at.Nanosecond())}
	return []unix.Timespec{t, t}
}

func setTime(fd int, at time.Time) error {
	return unix.UtimesNanoAt(fd, "", timesOf(at), unix.AT_EMPTY_PATH)
}

// setXattrs gives an open file the attributes of an entry, and no others that are kept.
func setXattrs(fd int, h *tar.Header) error {
	has, err := xattrs(fd)
	if err != nil {
		return err
	}
	for record := range has {
		if _, stays := h.PAXRecords[record]; stays {
			continue
		}
		name, err := url.QueryUnescape(strings.TrimPrefix(record, xattrRecord))
		if err != nil {
			return err
		}
		if err := unix.Fremovexattr(fd, name); err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("remove the attribute %s: %w", name, err)
		}
	}
	for record, value := range h.PAXRecords {
		escaped, found := strings.CutPrefix(record, xattrRecord)
		if !found {
			continue
		}
		name, err := url.QueryUnescape(escaped)
		if err != nil || !keptXattr(name) {
			return fmt.Errorf("%w: it has the attribute %q", ErrMalformed, escaped)
		}
		if is, there := has[record]; there && is == value {
			continue
		}
		if err := unix.Fsetxattr(fd, name, []byte(value), 0); err != nil {
			return fmt.Errorf("set the attribute %s: %w", name, err)
		}
	}
	return nil
}

// removeBut removes what an open folder has besides those names. Mounts stay, and so do
// sandboxd's own files, sockets and devices, which are no part of any archive.
func (x *extractor) removeBut(fd int, at string, kept map[string]bool, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: folders are more than %d deep", at, maxDepth)
	}
	names, err := namesOf(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		if kept[name] {
			continue
		}
		child := path.Join(at, name)
		if x.apart(child) {
			continue
		}
		var stat unix.Stat_t
		if err := unix.Fstatat(fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		switch stat.Mode & unix.S_IFMT {
		case unix.S_IFSOCK, unix.S_IFCHR, unix.S_IFBLK:
			continue
		}
		if err := x.remove(fd, name, child, depth); err != nil && !errors.Is(err, errStays) {
			return err
		}
	}
	return nil
}

// errStays: something is mounted there, or in it is what no archive has.
var errStays = errors.New("it is no part of the files that are kept")

// remove removes what a name in an open folder names, with all that is in it.
func (x *extractor) remove(fd int, name, at string, depth int) error {
	err := unix.Unlinkat(fd, name, 0)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return errStays
	case !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM): // POSIX says EPERM for a folder
		return err
	}
	child, err := openat(fd, name, openFolder, 0)
	switch {
	case errors.Is(err, unix.EXDEV):
		return errStays
	case err != nil:
		return err
	}
	err = x.removeBut(child, at, nil, depth+1)
	_ = unix.Close(child)
	if err != nil {
		return err
	}
	err = unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EBUSY) {
		return errStays
	}
	return err
}
