package layer

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// The records of package sandboxd/archive, and the names of OCI's whiteouts.
const (
	namesRecord = "SANDLANE.names"
	endRecord   = "SANDLANE.end"
	xattrRecord = "SCHILY.xattr."

	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

const (
	// maxNames bounds the bytes of all names of changed folders, and maxFiles how many these and
	// those that the base had there are: they are in memory.
	maxNames = 16 << 20
	maxFiles = 500_000
	// maxLooked bounds how many names are looked at because a layer of the base hides what is
	// below it, which takes seconds.
	maxLooked = 500_000_000
)

// Errors of Convert.
var (
	// ErrCut: the archive ends before its end.
	ErrCut = errors.New("the archive of the files was cut off")
	// ErrMalformed: it is none of sandboxd's.
	ErrMalformed = errors.New("the archive of the files is malformed")
	// ErrTooMany: the folders that have changed have too many files.
	ErrTooMany = errors.New("the folders that the build changed have more files than one layer can delete from")
	// ErrName: a file has a name that means a deletion in a layer.
	ErrName = errors.New("a file's name begins with .wh., which no image can have")
)

// own are the paths of the builder that are no part of the image: what Kubernetes, a container's
// runtime and sandboxd put there. What is below them is not either.
var own = []string{
	"dev", "proc", "sys", "sandlane", "run/e2b", "run/sandlane", "run/secrets/kubernetes.io", "var/run/secrets/kubernetes.io",
	"etc/hosts", "etc/hostname", "etc/resolv.conf", "usr/local/bin/sudo",
}

func isOwn(p string) bool {
	return slices.ContainsFunc(own, func(o string) bool { return p == o || strings.HasPrefix(p, o+"/") })
}

// Entry is an entry of one of the base's layers, which are counted from the lowest.
type Entry struct {
	Layer int
	*tar.Header
}

// Convert writes the layer of an archive. base yields the entries of the base's layers, the
// lowest layer first; it is read after the archive, and only if a folder has changed.
func Convert(w io.Writer, archive io.Reader, base iter.Seq2[Entry, error]) error {
	c := converter{to: tar.NewWriter(w), folders: map[string]*folder{}}
	if err := c.files(tar.NewReader(archive)); err != nil {
		return err
	}
	if err := c.whiteouts(base); err != nil {
		return err
	}
	return c.to.Close()
}

// folder is a changed folder.
type folder struct {
	now  map[string]bool // the names that it has
	base map[string]int  // those that it had, with the layer that each is of
}

type converter struct {
	to      *tar.Writer
	folders map[string]*folder // by path; that of the root is "."
	around  map[string]bool    // the changed folders, and those that they are in
	names   int                // bytes of all names
	count   int                // of names that are kept
	looked  int                // at names, by forget
}

// keep counts a name that is to be kept in memory.
func (c *converter) keep() error {
	if c.count++; c.count > maxFiles {
		return ErrTooMany
	}
	return nil
}

// files writes what the archive has.
func (c *converter) files(from *tar.Reader) error {
	ended := false
	for {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCut, err)
		}
		name := path.Clean(h.Name)
		switch {
		case h.PAXRecords[endRecord] != "":
			ended = true
			continue
		case !filepath.IsLocal(name) || h.Typeflag == tar.TypeLink && !filepath.IsLocal(h.Linkname):
			return fmt.Errorf("%w: the name %q", ErrMalformed, h.Name)
		case h.PAXRecords[namesRecord] != "":
			if err := c.list(name, from, h.Size); err != nil {
				return err
			}
			continue
		case name == "." || isOwn(name):
			continue
		case strings.HasPrefix(path.Base(name), whiteout):
			return fmt.Errorf("%w: %s", ErrName, name)
		}
		if err := c.write(name, h, from); err != nil {
			return err
		}
	}
	if !ended {
		return ErrCut
	}
	return nil
}

// list reads the names of a changed folder.
func (c *converter) list(at string, from io.Reader, size int64) error {
	if c.names += int(min(size, maxNames+1)); c.names > maxNames {
		return fmt.Errorf("%w: more than %d bytes of names", ErrMalformed, maxNames)
	}
	text, err := io.ReadAll(from)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCut, err)
	}
	f := &folder{now: map[string]bool{}, base: map[string]int{}}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(text), "\x00"), "\x00") {
		if err := c.keep(); err != nil {
			return err
		}
		f.now[name] = true
	}
	c.folders[at] = f
	return nil
}

// write writes one file: what a layer has of it, and nothing else of the archive's records.
func (c *converter) write(name string, h *tar.Header, content io.Reader) error {
	out := &tar.Header{
		Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid,
		ModTime: h.ModTime, Format: tar.FormatPAX,
	}
	switch h.Typeflag {
	case tar.TypeDir:
		out.Name += "/"
	case tar.TypeReg, tar.TypeSymlink, tar.TypeLink, tar.TypeFifo:
	default:
		return fmt.Errorf("%w: %s is of the type %q", ErrMalformed, name, h.Typeflag)
	}
	for record, value := range h.PAXRecords {
		if strings.HasPrefix(record, xattrRecord) {
			if out.PAXRecords == nil {
				out.PAXRecords = map[string]string{}
			}
			out.PAXRecords[record] = value
		}
	}
	if err := c.to.WriteHeader(out); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	_, err := io.Copy(c.to, content)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", ErrCut, err)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// whiteouts writes a deletion for each name that a changed folder had in the base and has no
// more.
func (c *converter) whiteouts(base iter.Seq2[Entry, error]) error {
	if len(c.folders) == 0 {
		return nil
	}
	c.around = map[string]bool{}
	for p := range c.folders {
		for ; !c.around[p]; p = path.Dir(p) {
			c.around[p] = true
		}
	}
	for e, err := range base {
		if err != nil {
			return fmt.Errorf("read the base: %w", err)
		}
		if err := c.note(path.Clean("/" + e.Name)[1:], e); err != nil {
			return err
		}
	}
	for _, at := range slices.Sorted(maps.Keys(c.folders)) {
		f := c.folders[at]
		for _, name := range slices.Sorted(maps.Keys(f.base)) {
			gone := path.Join(at, name)
			if f.now[name] || isOwn(gone) || slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(o, gone+"/") }) {
				continue
			}
			if err := c.to.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path.Join(at, whiteout+name), Mode: 0o600, Format: tar.FormatPAX}); err != nil {
				return fmt.Errorf("write that %s is deleted: %w", gone, err)
			}
		}
	}
	return nil
}

// note takes an entry of the base into account.
func (c *converter) note(p string, e Entry) error {
	dir, name := path.Dir(p), path.Base(p)
	switch hidden, deleted := strings.CutPrefix(name, whiteout); {
	case name == opaque:
		return c.forget(dir, e.Layer)
	case deleted:
		if f := c.folders[dir]; f != nil && f.base[hidden] < e.Layer {
			delete(f.base, hidden)
		}
		return c.forget(path.Join(dir, hidden), e.Layer)
	}
	if e.Typeflag != tar.TypeDir { // it may be in place of a folder
		if err := c.forget(p, e.Layer); err != nil {
			return err
		}
	}
	for p != "." && p != "" {
		dir, name = path.Dir(p), path.Base(p)
		if f := c.folders[dir]; f != nil {
			if _, known := f.base[name]; !known {
				if err := c.keep(); err != nil {
					return err
				}
			}
			f.base[name] = e.Layer
		}
		p = dir
	}
	return nil
}

// forget drops what the layers below one had in a folder.
func (c *converter) forget(at string, layer int) error {
	if !c.around[at] {
		return nil
	}
	for p, f := range c.folders {
		if c.looked++; p == at || at == "." || strings.HasPrefix(p, at+"/") {
			c.looked += len(f.base)
			maps.DeleteFunc(f.base, func(_ string, of int) bool { return of < layer })
		}
	}
	if c.looked > maxLooked {
		return ErrTooMany
	}
	return nil
}
