package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/filelock"
	"github.com/sandlane/sandlane/local/node/removal"
)

const (
	// complete is the file of an unpacked image that has its size in bytes; it was last changed
	// when the image was last asked for.
	complete = "complete"
	// bytesOfFile is what a file takes on the disk beside its content.
	bytesOfFile = 4 << 10
	// removed ends the name of a folder that is being removed.
	removed = ".old"
	// unfinishedEnd ends the name of a folder that an image is unpacked into.
	unfinishedEnd = ".new"
)

// Release lets the image be removed when there are too many. Call it once nothing uses Root
// any more; a process that ends releases what it holds.
func (pulled *Image) Release() {
	if pulled != nil && pulled.held != nil {
		_ = pulled.held.Close()
		pulled.held = nil
	}
}

// hold keeps an image from being removed until the file is closed, whether it is there yet or
// not.
func (s *Store) hold(digest v1.Hash) (*os.File, error) {
	f, err := os.OpenFile(s.folder(digest)+".held", os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	// A removal has the exclusive lock for one rename.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil { //nolint:gosec // a file descriptor
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// use holds an unpacked image and notes that it was asked for now; nil if it is not there.
func (s *Store) use(digest v1.Hash) (*os.File, error) {
	f, err := s.hold(digest)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if err := os.Chtimes(filepath.Join(s.folder(digest), complete), now, now); err != nil {
		_ = f.Close()
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	return f, nil
}

func writeSize(dir string, bytes int64) error {
	return os.WriteFile(filepath.Join(dir, complete), []byte(strconv.FormatInt(bytes, 10)), 0o644)
}

// unpackedImage is what collect knows of a folder.
type unpackedImage struct {
	dir   string
	bytes int64
	used  time.Time
}

// collect removes images that are not held, the longest unused first, until what is kept has
// at most Keep bytes. It is safe beside other calls and processes.
func (s *Store) collect() error {
	all, err := s.list()
	if err != nil {
		return fmt.Errorf("look for images that are not used: %w", err)
	}
	var total int64
	for _, image := range all {
		total += image.bytes
	}
	slices.SortFunc(all, func(a, b unpackedImage) int { return cmp.Compare(a.used.UnixNano(), b.used.UnixNano()) })
	for _, image := range all {
		if total <= s.o.Keep {
			return nil
		}
		gone, err := remove(image.dir)
		if err != nil {
			return fmt.Errorf("remove an image that is not used: %w", err)
		}
		if gone {
			total -= image.bytes
		}
	}
	return nil
}

// list returns the unpacked images, and removes what an earlier removal or a killed pull left.
func (s *Store) list() (all []unpackedImage, err error) {
	entries, err := os.ReadDir(s.o.Dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		dir := filepath.Join(s.o.Dir, entry.Name())
		if strings.HasSuffix(dir, removed) {
			if err := removal.Tree(dir); err != nil {
				return nil, err
			}
			continue
		}
		if strings.HasSuffix(dir, unfinishedEnd) {
			if err := removeUnfinished(dir); err != nil {
				return nil, err
			}
			continue
		}
		info, err := os.Stat(filepath.Join(dir, complete))
		if err != nil {
			continue // a record or a lock
		}
		text, err := os.ReadFile(filepath.Join(dir, complete))
		if err != nil {
			continue // removed just now
		}
		bytes, _ := strconv.ParseInt(string(text), 10, 64)
		all = append(all, unpackedImage{dir, bytes, info.ModTime()})
	}
	return all, nil
}

// removeUnfinished removes the folder of a pull that was killed. A pull that goes on has the
// image's lock, and is about to give the folder its name.
func removeUnfinished(dir string) error {
	once, cancel := context.WithCancel(context.Background())
	cancel() // a lock that is another's is not waited for
	unlock, err := filelock.Lock(once, strings.TrimSuffix(dir, unfinishedEnd)+".lock", nil)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	return removal.Tree(dir)
}

// remove removes the folder of an image unless it is held.
func remove(dir string) (gone bool, err error) {
	f, err := os.OpenFile(dir+".held", os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return false, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a file descriptor
	var old string
	if err == nil {
		// A name of its own: an earlier removal of the image may be under way still.
		if old, err = os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+"-*"+removed); err == nil {
			err = unix.Rename(dir, old) // which takes the place of an empty folder
		}
	}
	_ = f.Close()
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return false, nil
	case err != nil && !errors.Is(err, os.ErrNotExist): // else another process has removed it
		if old != "" {
			err = errors.Join(err, removal.Tree(old))
		}
		return false, err
	}
	return true, removal.Tree(old)
}
