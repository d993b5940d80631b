package archive

import (
	"archive/tar"
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

// What an archive may not be.
var (
	// ErrMalformed: it is not what Write writes.
	ErrMalformed = errors.New("not an archive of a sandbox")
	// ErrMismatch: it was made in a container of another image.
	ErrMismatch = errors.New("the archive does not fit the files of this container")
)

// maxNames bounds the names of folders that one archive may have, in bytes.
const maxNames = 64 << 20

// extractor restores one archive.
type extractor struct {
	*opened
	ctx     context.Context
	folders []folder // in the order of the archive: outer ones first
	names   int      // bytes of their names
	ended   bool     // the last entry was read
	buf     []byte   // of fill
}

// folder is one that the archive has. Its mode and time are set at the end: what comes
// into it changes them, or may need others.
type folder struct {
	path  string
	mode  uint32
	at    time.Time
	names []string
	named bool
}

// Extract restores an archive in a tree with the same mounts. After an error it is
// restored in part: the container is of no use then.
func Extract(ctx context.Context, r io.Reader, t Tree) error {
	o, err := t.open()
	if err != nil {
		return err
	}
	x := &extractor{opened: o, ctx: ctx}
	err = x.all(tar.NewReader(r))
	if err == nil {
		err = onlyZeros(r)
	}
	if err == nil {
		err = x.finish()
	}
	return errors.Join(err, o.close())
}

// onlyZeros reads what follows the end of an archive, which belongs to nothing.
func onlyZeros(r io.Reader) error {
	buf := make([]byte, 4<<10)
	for {
		n, err := r.Read(buf)
		for _, b := range buf[:n] {
			if b != 0 {
				return fmt.Errorf("%w: there is more behind its end", ErrMalformed)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (x *extractor) all(r *tar.Reader) error {
	for {
		if err := x.ctx.Err(); err != nil {
			return err
		}
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF) && x.ended:
			return nil
		case errors.Is(err, io.EOF): // tar itself does not tell
			return fmt.Errorf("read the archive: %w", io.ErrUnexpectedEOF)
		case err != nil:
			return fmt.Errorf("read the archive: %w", err)
		case x.ended:
			return fmt.Errorf("%w: there is more behind its end", ErrMalformed)
		}
		if err := x.entry(h, r); err != nil {
			return fmt.Errorf("restore %q: %w", h.Name, err)
		}
	}
}

// pathOf is the path of an entry, which is absolute and clean, and not sandboxd's own.
func (x *extractor) pathOf(name string) (string, error) {
	if name == "." {
		return "/", nil
	}
	at := "/" + name
	own := slices.ContainsFunc(x.Skip, func(skip string) bool { return at == skip || strings.HasPrefix(at, skip+"/") })
	if name == "" || own || path.Clean(at) != at || strings.ContainsRune(at, 0) {
		return "", fmt.Errorf("%w: it has the path %q", ErrMalformed, name)
	}
	return at, nil
}

// knownRecords refuses what Write does not write, such as files with holes, which can be
// any number of times as large as the archive.
func knownRecords(h *tar.Header) error {
	for record := range h.PAXRecords {
		switch record {
		case "path", "linkpath", "size", "uid", "gid", "mtime", namesRecord, endRecord:
		default:
			if !strings.HasPrefix(record, xattrRecord) {
				return fmt.Errorf("%w: it has the record %q", ErrMalformed, record)
			}
		}
	}
	return nil
}

func (x *extractor) entry(h *tar.Header, content io.Reader) error {
	at, err := x.pathOf(h.Name)
	if err != nil {
		return err
	}
	if err := knownRecords(h); err != nil {
		return err
	}
	if _, ok := h.PAXRecords[endRecord]; ok {
		x.ended = true
		return nil
	}
	if _, ok := h.PAXRecords[namesRecord]; ok {
		return x.readNames(at, h.Size, content)
	}
	p, err := x.parent(at)
	if err != nil {
		return err
	}
	defer p.close()
	if h.Typeflag == tar.TypeDir {
		return x.makeFolder(p, at, h)
	}
	if p.base == "." || x.apart(at) {
		return fmt.Errorf("%w: it replaces a mount", ErrMalformed)
	}
	switch err := x.remove(p.fd, p.base, at, 0); {
	case errors.Is(err, unix.EACCES):
		return x.inPlace(p, h, content, err)
	case err != nil:
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return x.makeFile(p, h, content)
	case tar.TypeLink:
		return x.makeLink(p, h)
	case tar.TypeSymlink:
		err = unix.Symlinkat(h.Linkname, p.fd, p.base)
	case tar.TypeFifo:
		err = unix.Mknodat(p.fd, p.base, unix.S_IFIFO|0o600, 0)
	default:
		return fmt.Errorf("%w: it has an entry of the type %q", ErrMalformed, h.Typeflag)
	}
	if err != nil {
		return err
	}
	return describe(p, h)
}

// place is an open folder, and the last element of a path in it; "." for a mount itself.
type place struct {
	fd   int
	base string
}

func (p place) close() { _ = unix.Close(p.fd) }

// parent opens the folder that a path is in.
func (x *extractor) parent(at string) (place, error) {
	m, rel, err := x.locate(at)
	if err != nil {
		return place{}, err
	}
	dir := path.Dir(rel)
	base := path.Base(rel)
	fd, err := openat(m.fd, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return place{}, fmt.Errorf("%w: %s: %w", ErrMismatch, path.Dir(at), err)
	case err != nil:
		return place{}, err
	}
	return place{fd, base}, nil
}

// readNames reads the names of the folder that was restored last, and removes what it
// has besides.
func (x *extractor) readNames(at string, size int64, content io.Reader) error {
	if len(x.folders) == 0 || x.folders[len(x.folders)-1].path != at || x.folders[len(x.folders)-1].named {
		return fmt.Errorf("%w: it has names of no folder", ErrMalformed)
	}
	if size < 0 || int64(x.names)+size > maxNames {
		return fmt.Errorf("%w: it has more than %d bytes of names", ErrMalformed, maxNames)
	}
	text, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	x.names += len(text)
	last := &x.folders[len(x.folders)-1]
	last.named = true
	kept := map[string]bool{}
	if len(text) > 0 {
		last.names = strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	}
	for _, name := range last.names {
		if name == "" || name == "." || name == ".." || strings.ContainsRune(name, '/') {
			return fmt.Errorf("%w: it has the name %q", ErrMalformed, name)
		}
		kept[name] = true
	}
	fd, err := x.openFolder(at)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return x.removeBut(fd, at, kept, 0)
}

func (x *extractor) openFolder(at string) (int, error) {
	m, rel, err := x.locate(at)
	if err != nil {
		return -1, err
	}
	return openat(m.fd, rel, openFolder, 0)
}

// finish sets the mode and the time of each folder, the inner ones first, since restoring
// files into a folder changes them, and checks that every name that the archive lists exists.
func (x *extractor) finish() error {
	for i := len(x.folders) - 1; i >= 0; i-- {
		if err := x.finishFolder(x.folders[i]); err != nil {
			return fmt.Errorf("restore %q: %w", x.folders[i].path, err)
		}
	}
	return nil
}

func (x *extractor) finishFolder(f folder) error {
	fd, err := x.openFolder(f.path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	for _, name := range f.names {
		err := unix.Fstatat(fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("%w: it has no %q, which the archive takes from the image", ErrMismatch, name)
		}
		if err != nil {
			return err
		}
	}
	if err := setMode(fd, f.mode); err != nil {
		return err
	}
	err = setTime(fd, f.at)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS) { // another user's, or the image's: it keeps its time
		return nil
	}
	return err
}
