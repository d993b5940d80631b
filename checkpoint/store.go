package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"
)

// What a Store refuses.
var (
	// ErrNotFound: there is no archive of that ID.
	ErrNotFound = errors.New("no such archive")
	// ErrTooLarge: the archive is larger than the store's limit. Nothing is kept of it.
	ErrTooLarge = errors.New("the archive is too large")
	// ErrFull: the store has no room for the archive. Nothing is kept of it.
	ErrFull = errors.New("the store of archives is full")
	// ErrDamaged: what is kept is not what was put.
	ErrDamaged = errors.New("the archive is damaged")
	// ErrInvalidID: no archive can have that ID.
	ErrInvalidID = errors.New("not an archive's ID")
)

// Store keeps archives. Safe for concurrent use, also by several processes.
type Store interface {
	// Put keeps what r gives until io.EOF. On any other error of r, and on its own,
	// nothing is kept. Of two Puts of one ID the later one stays.
	Put(ctx context.Context, id string, r io.Reader) (Info, error)
	// Get opens an archive, which the caller closes. A Read that comes to the end
	// returns ErrDamaged in place of io.EOF if what was read is not what was put: until
	// io.EOF nothing read may be relied on.
	Get(ctx context.Context, id string) (io.ReadCloser, Info, error)
	// Delete deletes an archive. One that is not there counts as deleted.
	Delete(ctx context.Context, id string) error
	// List returns all archives, in no order.
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

// idPattern is the form of UIDs, and of more that is safe as the name of a file.
var idPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func checkID(id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("%w: %q", ErrInvalidID, id)
	}
	return nil
}
