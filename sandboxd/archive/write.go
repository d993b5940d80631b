package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// namesRecord marks the entry with the names of a folder.
	namesRecord = "SANDLANE.names"
	xattrRecord = "SCHILY.xattr."
	xattrCaps   = "security.capability"
	// maxDepth bounds the folders that are open at once.
	maxDepth = 512
	// maxXattrs bounds the attributes of one file: a header of tar has 1 MiB.
	maxXattrs = 512 << 10
	// endRecord marks the last entry: an archive without it was cut.
	endRecord = "SANDLANE.end"
)

// Why no archive is written. What is kept must be restored by a process with the same
// rights, within the same bounds.
var (
	// ErrChanging: a file became shorter while it was read. Another try may succeed.
	ErrChanging = errors.New("a file changes while it is read")
	// ErrRights: files belong to other users, to whom this process may not give files.
	ErrRights = errors.New("files of other users cannot be restored without the capability CHOWN")
	// ErrLink: a file has a name in a folder that this process may write, and a further one
	// in a folder that it may not: the latter cannot be made a link to the former.
	ErrLink = errors.New("a hard link in a folder of another user cannot be restored without the capability DAC_OVERRIDE")
	// ErrMode: the kernel takes the set-group-ID bit off what belongs to a group that this
	// process is not in, and reports success.
	ErrMode = errors.New("the set-group-ID bit of another group cannot be restored without the capability FSETID")
	// ErrFileCaps: a file has capabilities, as ping may have.
	ErrFileCaps = errors.New("a file's capabilities cannot be restored without the capability SETFCAP")
	// ErrReplaced: a file or a link is where a folder must be for sandboxd's own files.
	ErrReplaced = errors.New("a folder that sandboxd needs was replaced")
	// ErrNames: a folder's names are more than an archive may have.
	ErrNames = errors.New("the names of files are too many")
)

// writer writes one archive.
type writer struct {
	*opened
	ctx context.Context
	tar *tar.Writer
	// links are the first paths of files with several, on the mount that is written: no
	// link leads to another one.
	links map[inode]firstName
	names int // bytes of the folders' names
	owner owner
	// imageStays: the mount that is written is overlayfs, and folders that are in the image
	// too have one link and cannot be moved.
	imageStays bool
}

type inode struct{ dev, ino uint64 }

// Write writes the archive of a tree. Nothing in it may change meanwhile.
func Write(ctx context.Context, w io.Writer, t Tree) error {
	o, err := t.open()
	if err != nil {
		return err
	}
	a := &writer{opened: o, ctx: ctx, tar: tar.NewWriter(w), owner: ownerOf()}
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
	if m.again {
		return nil
	}
	switch readOnly, err := isReadOnly(m.fd); {
	case err != nil:
		return fmt.Errorf("look at mount %s: %w", m.Path, err)
	case readOnly: // what the runtime made there before is in the next container too
		return nil
	}
	a.links, a.imageStays = map[inode]firstName{}, imageStays(m)
	fd, err := openat(m.fd, ".", openFolder, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", m.Path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("look at %s: %w", m.Path, err)
	}
	return a.folder(fd, m.Path, &stat, m.Whole, 0)
}

func (a *writer) changed(stat *unix.Stat_t) bool {
	return !time.Unix(stat.Ctim.Unix()).Before(a.Since)
}

// folder writes what is to be kept of an open folder.
func (a *writer) folder(fd int, at string, stat *unix.Stat_t, whole bool, depth int) error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	if depth > maxDepth {
		return fmt.Errorf("%s: folders are more than %d deep", at, maxDepth)
	}
	changed := a.changed(stat)
	names, err := a.list(fd, at, whole || changed)
	if err != nil {
		return err
	}
	if whole || changed {
		if err := a.header(fd, at, stat, ""); err != nil {
			return err
		}
		if err := a.writeNames(at, names); err != nil {
			return err
		}
	}
	for name := range names.all() {
		e := entry{name: name, path: path.Join(at, name)}
		if err := unix.Fstatat(fd, name, &e.stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("look at %s: %w", e.path, err)
		}
		if err := a.entry(fd, e, whole, changed, depth); err != nil {
			return err
		}
	}
	return nil
}

// entry is one name in a folder.
type entry struct {
	name, path string
	stat       unix.Stat_t
}

// isPart reports whether one name of an open folder is part of the tree.
func (a *writer) isPart(fd int, at, name string) (bool, error) {
	child := path.Join(at, name)
	if a.apart(child) {
		return false, nil
	}
	open, err := openat(fd, name, unix.O_PATH, 0)
	switch {
	// Something else is mounted there, or sandboxd itself has removed it.
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOENT):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at %s: %w", child, err)
	}
	var stat unix.Stat_t
	err = unix.Fstat(open, &stat)
	_ = unix.Close(open)
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", child, err)
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFLNK, unix.S_IFIFO:
		return true, nil
	}
	return false, nil
}

// writeNames writes the names of a folder.
func (a *writer) writeNames(at string, names *nameList) error {
	a.names += len(names.text)
	err := a.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: relative(at), Size: int64(len(names.text)), Mode: 0o600, Format: tar.FormatPAX,
		PAXRecords: map[string]string{namesRecord: "1"},
	})
	for _, at := range names.at {
		if err == nil {
			_, err = a.tar.Write(names.text[at : int(at)+len(names.name(at))+1])
		}
	}
	return err
}

// relative is a path as archives have it.
func relative(at string) string {
	if at == "/" {
		return "."
	}
	return at[1:]
}

// entry writes one name of a folder. whole: the folder is kept whole; changed: the folder
// changed since the container started.
func (a *writer) entry(fd int, e entry, whole, changed bool, depth int) error {
	kind := e.stat.Mode & unix.S_IFMT
	if kind == unix.S_IFDIR {
		child, err := openat(fd, e.name, openFolder, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", e.path, err)
		}
		defer func() { _ = unix.Close(child) }()
		return a.folder(child, e.path, &e.stat, whole || changed && a.mayBeMoved(&e.stat), depth+1)
	}
	if !whole && !a.changed(&e.stat) {
		return nil
	}
	if a.aroundOwn(e.path) {
		return fmt.Errorf("%s: %w", e.path, ErrReplaced)
	}
	if e.stat.Nlink > 1 {
		key, fixed := inode{e.stat.Dev, e.stat.Ino}, a.fixed(fd, whole || changed)
		first, linked := a.links[key]
		if linked && fixed && !first.fixed {
			return fmt.Errorf("%s, of %s: %w", e.path, first.path, ErrLink)
		}
		if linked {
			return a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: relative(e.path), Linkname: relative(first.path), Format: tar.FormatPAX})
		}
		a.links[key] = firstName{e.path, fixed}
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
