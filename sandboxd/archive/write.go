package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// namesRecord marks the entry with the names of a folder.
	namesRecord = "SANDLANE.names"
	xattrRecord = "SCHILY.xattr."
	// maxDepth bounds the folders that are open at once.
	maxDepth = 512
	// maxXattrs bounds the attributes of one file: a header of tar has 1 MiB.
	maxXattrs = 512 << 10
	// endRecord marks the last entry: an archive without it was cut.
	endRecord = "SANDLANE.end"
)

// The errors of an archive that cannot be written. The process that restores an archive has
// the same rights and bounds, so Write refuses what could not be restored.
var (
	// ErrChanging: a file became shorter while it was read. Another try may succeed.
	ErrChanging = errors.New("a file changes while it is read")
	// ErrRights: files belong to other users, and this process may not give files to them.
	ErrRights = errors.New("files of other users cannot be restored without the capability CHOWN")
	// ErrFolderRights: a file was changed in a folder in which this process may not write.
	ErrFolderRights = errors.New("a file in a folder that this process may not write in cannot be restored without the capability DAC_OVERRIDE")
	// ErrReplaced: a folder with files of sandboxd itself is something else now.
	ErrReplaced = errors.New("a folder that sandboxd itself uses was replaced, and cannot be restored")
	// ErrNames: a folder's names are more than an archive may have.
	ErrNames = errors.New("the names of files are too many")
)

// writer writes one archive.
type writer struct {
	*opened
	ctx context.Context
	tar *tar.Writer
	// links has the first path of each file with several links.
	links map[inode]string
	names int // bytes of the folders' names
	owner owner
}

type inode struct{ dev, ino uint64 }

// Write writes the archive of a tree. No file in it may change meanwhile.
func Write(ctx context.Context, w io.Writer, t Tree) error {
	o, err := t.open()
	if err != nil {
		return err
	}
	a := &writer{opened: o, ctx: ctx, tar: tar.NewWriter(w), links: map[inode]string{}, owner: ownerOf()}
	for i := len(o.mounts) - 1; i >= 0 && err == nil; i-- { // the outer ones first
		err = a.mount(o.mounts[i])
	}
	if err == nil {
		err = a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: ".", Format: tar.FormatPAX, PAXRecords: map[string]string{endRecord: "1"}})
	}
	if err == nil {
		err = a.tar.Close()
	}
	return errors.Join(err, o.close())
}

func (a *writer) mount(m mount) error {
	clear(a.links) // no link leads to another mount, though both may show the same files
	fd, err := openat(m.fd, ".", openFolder, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", m.Path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("stat %s: %w", m.Path, err)
	}
	return a.folder(fd, m.Path, &stat, m.Whole, 0)
}

func (a *writer) changed(stat *unix.Stat_t) bool {
	return !time.Unix(stat.Ctim.Unix()).Before(a.Since)
}

// folder writes the kept entries of an open folder, and the folder itself if it is kept.
func (a *writer) folder(fd int, at string, stat *unix.Stat_t, whole bool, depth int) error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	if depth > maxDepth {
		return fmt.Errorf("%s: folders are more than %d deep", at, maxDepth)
	}
	names, err := namesOf(fd)
	if err != nil {
		return fmt.Errorf("list %s: %w", at, err)
	}
	changed := a.changed(stat)
	if whole || changed {
		if names, err = a.keptOf(fd, at, names); err != nil {
			return err
		}
		if err := a.header(fd, at, stat, ""); err != nil {
			return err
		}
		if err := a.writeNames(at, names); err != nil {
			return err
		}
	}
	// Entries are not collected: a folder may have a million.
	for _, name := range names {
		e, kept, err := a.inspect(fd, at, name)
		if err == nil && kept {
			err = a.entry(fd, e, whole, changed, depth)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keptOf returns those of the names in an open folder whose entries are kept.
func (a *writer) keptOf(fd int, at string, names []string) ([]string, error) {
	kept := names[:0]
	for _, name := range names {
		_, keep, err := a.inspect(fd, at, name)
		if err != nil {
			return nil, err
		}
		if keep {
			kept = append(kept, name)
		}
	}
	return kept, nil
}

// entry is one name in a folder.
type entry struct {
	name, path string
	stat       unix.Stat_t
}

// inspect reads what one entry of an open folder is, and decides whether it is kept.
func (a *writer) inspect(fd int, at, name string) (e entry, kept bool, err error) {
	e = entry{name: name, path: path.Join(at, name)}
	if a.apart(e.path) {
		return e, false, nil
	}
	child, err := openat(fd, name, unix.O_PATH, 0)
	switch {
	// The entry is a mount that does not belong to the sandbox, or sandboxd itself has
	// removed it.
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOENT):
		return e, false, nil
	case err != nil:
		return e, false, fmt.Errorf("open %s: %w", e.path, err)
	}
	err = unix.Fstat(child, &e.stat)
	_ = unix.Close(child)
	if err != nil {
		return e, false, fmt.Errorf("stat %s: %w", e.path, err)
	}
	switch e.stat.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFLNK, unix.S_IFIFO:
		kept = true
	}
	return e, kept, nil
}

// writeNames writes the names of a folder.
func (a *writer) writeNames(at string, names []string) error {
	var text strings.Builder
	for _, name := range names {
		text.WriteString(name)
		text.WriteByte(0)
	}
	if a.names += text.Len(); a.names > maxNames {
		return fmt.Errorf("list %s: %w: more than %d bytes", at, ErrNames, maxNames)
	}
	err := a.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: relative(at), Size: int64(text.Len()), Mode: 0o600, Format: tar.FormatPAX,
		PAXRecords: map[string]string{namesRecord: "1"},
	})
	if err == nil {
		_, err = io.WriteString(a.tar, text.String())
	}
	return err
}

// relative returns a path as archives have it: without the first slash.
func relative(at string) string {
	if at == "/" {
		return "."
	}
	return at[1:]
}

// entry writes one entry of a folder. whole says that all files in the folder are kept,
// changed that the folder itself has changed.
func (a *writer) entry(fd int, e entry, whole, changed bool, depth int) error {
	kind := e.stat.Mode & unix.S_IFMT
	if kind == unix.S_IFDIR {
		child, err := openat(fd, e.name, openFolder, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", e.path, err)
		}
		defer func() { _ = unix.Close(child) }()
		// A changed folder may have been moved here, with older files in it.
		return a.folder(child, e.path, &e.stat, whole || changed && a.changed(&e.stat), depth+1)
	}
	if !whole && !a.changed(&e.stat) {
		return nil
	}
	if a.around(e.path) {
		return fmt.Errorf("%s: %w", e.path, ErrReplaced)
	}
	if !whole && !changed && !a.owner.replaces(fd, &e.stat) {
		return fmt.Errorf("%s: %w", e.path, ErrFolderRights)
	}
	if e.stat.Nlink > 1 {
		key := inode{e.stat.Dev, e.stat.Ino}
		if first, linked := a.links[key]; linked {
			return a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: relative(e.path), Linkname: relative(first), Format: tar.FormatPAX})
		}
		a.links[key] = e.path
	}
	switch kind {
	case unix.S_IFLNK:
		target, err := readlink(fd, e.name)
		if err != nil {
			return fmt.Errorf("read the link %s: %w", e.path, err)
		}
		return a.header(-1, e.path, &e.stat, target)
	case unix.S_IFIFO:
		return a.header(-1, e.path, &e.stat, "")
	}
	return a.regular(fd, e)
}

func readlink(fd int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
