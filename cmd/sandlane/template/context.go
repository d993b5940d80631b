package template

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// fixedTime is the time of all files in an archive, so that equal files have equal archives. ZIP
// knows no earlier one.
var fixedTime = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// buildContext is the folder that COPY copies from.
type buildContext struct {
	dir     string
	ignored *patternmatcher.PatternMatcher // the lines of .dockerignore, as Docker reads them
}

func openContext(dir string) (*buildContext, error) {
	var patterns []string
	switch f, err := os.Open(filepath.Join(dir, ".dockerignore")); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("read the context: %w", err)
	default:
		defer func() { _ = f.Close() }() // it was only read
		if patterns, err = ignorefile.ReadAll(f); err != nil {
			return nil, fmt.Errorf("read the context's .dockerignore: %w", err)
		}
	}
	ignored, err := patternmatcher.New(patterns)
	if err != nil {
		return nil, fmt.Errorf("read the context's .dockerignore: correct its patterns: %w", err)
	}
	return &buildContext{dir, ignored}, nil
}

// archive writes what a source of COPY names into a file that is removed already, and returns
// that, its size, and the digest of its content.
func (c *buildContext) archive(source string) (file *os.File, size int64, hash string, err error) {
	source = path.Clean(strings.TrimPrefix(filepath.ToSlash(source), "/"))
	if !filepath.IsLocal(source) {
		return nil, 0, "", fmt.Errorf("%s is outside of the context", source)
	}
	found, err := filepath.Glob(filepath.Join(c.dir, source))
	if err != nil || len(found) == 0 {
		return nil, 0, "", fmt.Errorf("%s is not in the context %s", source, c.dir)
	}
	if file, err = os.CreateTemp("", "sandlane-context-"); err != nil {
		return nil, 0, "", fmt.Errorf("keep an archive: %w", err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	if err := os.Remove(file.Name()); err != nil {
		return nil, 0, "", fmt.Errorf("keep an archive: %w", err)
	}
	digest, zipped := sha256.New(), gzip.NewWriter(file)
	w := tar.NewWriter(io.MultiWriter(digest, zipped))
	count := 0
	for _, at := range found {
		if err := c.walk(w, at, &count); err != nil {
			return nil, 0, "", err
		}
	}
	if count == 0 {
		return nil, 0, "", fmt.Errorf("%s has no file that .dockerignore lets in", source)
	}
	err = errors.Join(w.Close(), zipped.Close())
	if err == nil {
		size, err = file.Seek(0, io.SeekCurrent)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	return file, size, hex.EncodeToString(digest.Sum(nil)), err
}

// walk adds a file, or a folder with all that is in it.
func (c *buildContext) walk(w *tar.Writer, at string, count *int) error {
	return filepath.WalkDir(at, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(c.dir, p)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if name == "." {
			return nil
		}
		if ignored, err := c.ignored.MatchesOrParentMatches(name); ignored || err != nil { // a line with ! may let in what is below an ignored folder
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		target := ""
		switch info.Mode().Type() {
		case fs.ModeSymlink:
			if target, err = os.Readlink(p); err != nil {
				return err
			}
		case fs.ModeDir, 0:
		default:
			return fmt.Errorf("%s is neither a file nor a folder nor a link", p)
		}
		h, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		*h = tar.Header{Typeflag: h.Typeflag, Name: name, Linkname: target, Size: h.Size, Mode: h.Mode & 0o777, ModTime: fixedTime, Format: tar.FormatPAX}
		if d.IsDir() {
			h.Name += "/"
		}
		*count++
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			return nil
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, f)
		return errors.Join(err, f.Close())
	})
}
