package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"
)

// The errors of a Store.
var (
	// ErrNotFound: there is no archive with that ID.
	ErrNotFound = errors.New("no such archive")
	// ErrTooLarge: the archive is larger than the store's limit. Nothing is kept of it.
	ErrTooLarge = errors.New("the archive is too large")
	// ErrFull: the store has no room for the archive. Nothing is kept of it.
	ErrFull = errors.New("the store of archives is full")
	// ErrDamaged: the archive that is kept differs from the one that was put.
	ErrDamaged = errors.New("the archive is damaged")
	// ErrInvalidID: no archive can have that ID.
	ErrInvalidID = errors.New("not an archive's ID")
)

// Store keeps archives. Safe for concurrent use, also by several processes.
type Store interface {
	// Put keeps all bytes of r until io.EOF. After another error of r, or an error of its
	// own, it keeps nothing. Of two Puts with one ID the later one's archive stays.
	Put(ctx context.Context, id string, r io.Reader) (Info, error)
	// Get opens an archive, which the caller closes. At the end Read returns ErrDamaged in
	// place of io.EOF if the bytes differ from those that were put: do not rely on them before
	// io.EOF.
	Get(ctx context.Context, id string) (io.ReadCloser, Info, error)
	// Delete deletes an archive. It is no error if there is none.
	Delete(ctx context.Context, id string) error
	// List returns all archives, in no particular order.
	List(ctx context.Context) ([]Entry, error)
}

// Info describes an archive.
type Info struct {
	// Bytes is its length, and Digest its SHA-256 in hex.
	Bytes  int64
	Digest string
}

// Entry is one archive of a list.
type Entry struct {
	ID string
	// At is when it was put.
	At time.Time
}

// idPattern matches UIDs, and other names that are safe as the name of a file.
var idPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func checkID(id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("%w: %q", ErrInvalidID, id)
	}
	return nil
}
