package checkpoint

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/failpoint"
)

const (
	// partialPrefix begins the name of an archive that is being written. No ID begins so.
	partialPrefix = ".partial-"
	// partialPatience is how long a partial archive may be unchanged before a Sweep removes
	// it: longer than a Put can wait for its reader.
	partialPatience = time.Hour
	// copySize is how many bytes are read at once.
	copySize = 256 << 10
)

// Folder is a Store in a folder.
type Folder struct {
	root *os.Root
	max  int64

	puts, calls chan struct{} // the slots of bounded
}

var _ Store = (*Folder)(nil)

// OpenFolder opens a folder as a store, and makes it if it is missing. max bounds the
// bytes of one archive. Close it.
func OpenFolder(path string, max int64) (*Folder, error) {
	if max <= 0 {
		return nil, fmt.Errorf("the largest archive must have more than 0 bytes, not %d", max)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("the folder of checkpoints: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of checkpoints: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the folder of checkpoints: %w", err)
	}
	return &Folder{root: root, max: max, puts: make(chan struct{}, maxPuts), calls: make(chan struct{}, maxCalls)}, nil
}

// Close closes the folder. Archives that are open stay open.
func (f *Folder) Close() error { return f.root.Close() }

// Put implements Store. After ErrStuck r may still be in use until its next Read returns.
func (f *Folder) Put(ctx context.Context, id string, r io.Reader) (Info, error) {
	if err := checkID(id); err != nil {
		return Info{}, err
	}
	return bounded(ctx, f.puts, func() (Info, error) { return f.put(ctx, id, r) }, nil)
}

func (f *Folder) put(ctx context.Context, id string, r io.Reader) (Info, error) {
	partial := partialPrefix + rand.Text()
	info, err := f.write(ctx, partial, r)
	if err == nil {
		err = ctx.Err() // the caller may have given it up while the disk was waited for
	}
	if err == nil {
		failpoint.Hit("checkpoint/written") // the archive is on the disk, and has no name
		err = f.root.Rename(partial, id)
	}
	if err != nil {
		_ = f.root.Remove(partial) // if this fails, a Sweep removes it
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			err = fmt.Errorf("%w: %w", ErrFull, err)
		}
		return Info{}, fmt.Errorf("keep archive %s: %w", id, err)
	}
	failpoint.Hit("checkpoint/named") // the archive has its name, which may not be on the disk yet
	if err := f.sync(); err != nil {
		return Info{}, fmt.Errorf("keep archive %s: %w", id, err)
	}
	return info, nil
}

// write writes an archive, its parts' sums and its digest to a new file, and waits until the disk has it.
func (f *Folder) write(ctx context.Context, name string, r io.Reader) (info Info, err error) {
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Info{}, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	failpoint.Hit("checkpoint/begun") // an empty partial archive
	parts := newSums()
	n, err := copyAtMost(ctx, io.MultiWriter(file, parts), r, f.max)
	if err != nil {
		return Info{}, err
	}
	list := parts.end()
	digest := digestOf(list)
	if _, err := file.Write(append(list, digest[:]...)); err != nil {
		return Info{}, err
	}
	return Info{Bytes: n, Digest: inHex(digest)}, file.Sync()
}

// copyAtMost copies until io.EOF, or fails.
func copyAtMost(ctx context.Context, to io.Writer, from io.Reader, most int64) (n int64, err error) {
	buf := make([]byte, copySize)
	for {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		got, err := from.Read(buf)
		if n += int64(got); n > most {
			return n, fmt.Errorf("%w: it has more than %d bytes", ErrTooLarge, most)
		}
		if _, err := to.Write(buf[:got]); err != nil {
			return n, err
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// Delete implements Store.
func (f *Folder) Delete(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := bounded(ctx, f.calls, func() (struct{}, error) { return struct{}{}, f.remove(id) }, nil)
	return err
}

func (f *Folder) remove(id string) error {
	err := f.root.Remove(id)
	if err == nil {
		failpoint.Hit("checkpoint/deleted") // the name is removed, but may still be on the disk
		err = f.sync()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete archive %s: %w", id, err)
	}
	return nil
}

// List implements Store.
func (f *Folder) List(ctx context.Context) ([]Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return bounded(ctx, f.calls, f.list, nil)
}

func (f *Folder) list() ([]Entry, error) {
	var all []Entry
	err := f.each(func(name string, info fs.FileInfo) error {
		if idPattern.MatchString(name) && info.Mode().IsRegular() {
			all = append(all, Entry{ID: name, At: info.ModTime()})
		}
		return nil
	})
	return all, err
}

// Sweep removes the partial archives that no process writes to any more.
func (f *Folder) Sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	_, err := bounded(ctx, f.calls, func() (struct{}, error) { return struct{}{}, f.sweep() }, nil)
	return err
}

func (f *Folder) sweep() error {
	return f.each(func(name string, info fs.FileInfo) error {
		if !strings.HasPrefix(name, partialPrefix) || time.Since(info.ModTime()) < partialPatience {
			return nil
		}
		if err := f.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// each calls a function for each file of the folder.
func (f *Folder) each(do func(name string, info fs.FileInfo) error) error {
	entries, err := fs.ReadDir(f.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("list the folder of checkpoints: %w", err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil {
			err = do(entry.Name(), info)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // another process removed it
			return fmt.Errorf("list the folder of checkpoints: %w", err)
		}
	}
	return nil
}

// sync waits until the disk has the names of the folder.
func (f *Folder) sync() error {
	dir, err := f.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
