package buildstep

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Files are what a COPY step unpacks.
type Files struct {
	// Source is the path that the client named, perhaps with a pattern: what stands before
	// the pattern is left out of the names.
	Source string
	// Destination is absolute. A file goes there, or into the folder if it ends with a slash
	// or is one; of a folder the content goes into it.
	Destination string
	// UID and GID own what is unpacked.
	UID, GID int
	// Mode is that of all files and folders; 0: each has the archive's.
	Mode fs.FileMode
	// MaxBytes and MaxFiles bound what is unpacked; zero: 16 GiB and a million.
	MaxBytes int64
	MaxFiles int
}

// Errors of Copy.
var (
	// ErrNothing: the archive has no file of the source.
	ErrNothing = errors.New("the upload has no such files")
	// ErrKind: the archive has something else than files, folders and links.
	ErrKind = errors.New("the upload has something that is no file, folder or link")
	// ErrTooMuch: the files are more than may be unpacked.
	ErrTooMuch = errors.New("the upload has too many or too large files")
)

// Copy unpacks a tar archive, which may be compressed by gzip. After an error files may be
// there.
func Copy(archive io.Reader, f Files) error {
	buffered := bufio.NewReader(archive)
	if magic, _ := buffered.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return fmt.Errorf("read the upload: %w", err)
		}
		return copyTar(tar.NewReader(unzipped), f)
	}
	return copyTar(tar.NewReader(buffered), f)
}

// base is the part of a source before its first pattern.
func base(source string) string {
	segments := strings.Split(path.Clean(strings.ReplaceAll(source, "\\", "/")), "/")
	for i, segment := range segments {
		if strings.ContainsAny(segment, "*?[{") {
			segments = segments[:i]
			break
		}
	}
	return path.Clean(strings.Join(segments, "/"))
}

func copyTar(from *tar.Reader, f Files) error {
	c := copier{Files: f, base: base(f.Source)}
	if c.MaxBytes == 0 {
		c.MaxBytes = 16 << 30
	}
	if c.MaxFiles == 0 {
		c.MaxFiles = 1_000_000
	}
	defer c.close()
	for {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the upload: %w", err)
		}
		if err := c.entry(h, from); err != nil {
			return fmt.Errorf("unpack %q: %w", h.Name, err)
		}
	}
	if c.root == nil {
		return ErrNothing
	}
	return c.finish()
}

// copier unpacks one archive.
type copier struct {
	Files
	base string
	root *os.Root // the destination, or the folder of a single file; nil until the first entry
	// single: the source is one file, and root the folder around it, into which nothing else goes.
	single bool
	// folders get their modes last, since a folder without the right to write takes no files.
	folders map[string]fs.FileMode
}

func (c *copier) close() {
	if c.root != nil {
		_ = c.root.Close()
	}
}

// entry unpacks one entry.
func (c *copier) entry(h *tar.Header, content io.Reader) error {
	if c.MaxFiles--; c.MaxFiles < 0 {
		return ErrTooMuch
	}
	name := path.Clean(strings.TrimSuffix(h.Name, "/"))
	if !filepath.IsLocal(name) || name == "." && h.Typeflag != tar.TypeDir {
		return fmt.Errorf("%w: its name leads out of the upload", ErrKind)
	}
	rel, err := c.place(name, h.Typeflag == tar.TypeDir)
	if err != nil || rel == "" {
		return err
	}
	if c.folders == nil {
		c.folders = map[string]fs.FileMode{}
	}
	if err := c.makeParents(path.Dir(rel)); err != nil {
		return err
	}
	mode := h.FileInfo().Mode().Perm()
	if c.Mode != 0 {
		mode = c.Mode
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := c.makeFolder(rel); err != nil {
			return err
		}
		if _, made := c.folders[rel]; made {
			c.folders[rel] = mode
		}
		return nil
	case tar.TypeReg:
		if c.MaxBytes -= h.Size; c.MaxBytes < 0 {
			return ErrTooMuch
		}
		return c.makeFile(rel, h, mode, content)
	case tar.TypeSymlink:
		if err := c.clear(rel); err != nil {
			return err
		}
		if err := c.root.Symlink(h.Linkname, rel); err != nil {
			return err
		}
		return c.root.Lchown(rel, c.UID, c.GID)
	case tar.TypeLink:
		first, err := c.place(path.Clean(h.Linkname), false)
		if err != nil || first == "" {
			return errors.Join(ErrKind, err)
		}
		if first == rel { // tar was given the file twice
			return nil
		}
		if err := c.clear(rel); err != nil {
			return err
		}
		return c.root.Link(first, rel)
	}
	return ErrKind
}

// place returns where below the root an entry goes; nowhere if it is outside of the source. The
// first entry says whether the source is a file or a folder, and so where the root is.
func (c *copier) place(name string, folder bool) (string, error) {
	if name == c.base && !folder {
		return c.placeFile(name)
	}
	rel := name
	if c.base != "." {
		inside, found := strings.CutPrefix(name, c.base+"/")
		switch {
		case name == c.base:
			inside = "."
		case !found:
			return "", nil // a folder around the source
		}
		rel = inside
	}
	if c.single {
		return "", fmt.Errorf("%w: the source is a file and a folder", ErrKind)
	}
	if c.root == nil {
		if err := c.open(c.Destination); err != nil {
			return "", err
		}
	}
	return rel, nil
}

// placeFile returns where a source that is one file goes.
func (c *copier) placeFile(name string) (string, error) {
	at := c.Destination
	if info, err := os.Stat(at); strings.HasSuffix(at, "/") || err == nil && info.IsDir() {
		at = path.Join(at, path.Base(name))
	}
	if c.root == nil {
		c.single = true
		if err := c.open(path.Dir(at)); err != nil {
			return "", err
		}
	}
	return path.Base(at), nil
}

// MakeFolder makes a folder and those around it, unless it is there. It belongs to the owner,
// those around it to root.
func MakeFolder(dir string, uid, gid int) error {
	_, missing := os.Stat(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if !errors.Is(missing, fs.ErrNotExist) {
		return nil
	}
	return os.Chown(dir, uid, gid)
}

// open makes the folder, which belongs to the owner if it was not there, and opens it.
func (c *copier) open(dir string) error {
	if err := MakeFolder(dir, c.UID, c.GID); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	c.root = root
	return err
}

func (c *copier) makeParents(dir string) error {
	if dir == "." {
		return nil
	}
	if err := c.makeParents(path.Dir(dir)); err != nil {
		return err
	}
	return c.makeFolder(dir)
}

// makeFolder makes a folder. One that is there stays as it is, also a link to one inside the
// destination, as /bin is of most images.
func (c *copier) makeFolder(rel string) error {
	if info, err := c.root.Stat(rel); err == nil && info.IsDir() {
		return nil
	}
	if err := c.clear(rel); err != nil {
		return err
	}
	if err := c.root.Mkdir(rel, 0o755); err != nil {
		return err
	}
	c.folders[rel] = 0o755
	return c.root.Lchown(rel, c.UID, c.GID)
}

// clear removes what is no folder, so that nothing is written through a link.
func (c *copier) clear(rel string) error {
	if err := c.root.Remove(rel); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (c *copier) makeFile(rel string, h *tar.Header, mode fs.FileMode, content io.Reader) error {
	if err := c.clear(rel); err != nil {
		return err
	}
	file, err := c.root.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	err = errors.Join(err, file.Chown(c.UID, c.GID), file.Chmod(mode), file.Close())
	if err != nil {
		return err
	}
	return c.root.Chtimes(rel, h.ModTime, h.ModTime)
}

// finish gives the folders that were made their modes.
func (c *copier) finish() error {
	for rel, mode := range c.folders {
		if err := c.root.Chmod(rel, mode|0o100); err != nil { // its owner can enter it whatever the mode says
			return fmt.Errorf("set the mode of %q: %w", rel, err)
		}
	}
	return nil
}
