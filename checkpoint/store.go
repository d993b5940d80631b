package checkpoint

import (
	"context"
	"crypto/sha256"
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
	// Get opens an archive, which the caller closes.
	Get(ctx context.Context, id string) (Archive, Info, error)
	// Delete deletes an archive. It is no error if there is none.
	Delete(ctx context.Context, id string) error
	// List returns all archives, in no particular order.
	List(ctx context.Context) ([]Entry, error)
}

// Archive is an archive that is read once, from its beginning. It is not safe for concurrent
// use, but for Close.
type Archive interface {
	// Read returns ErrDamaged before any byte of a part that differs from what was put: what
	// it has returned is right, and all of it only at io.EOF.
	io.ReadCloser
	// Part reads the rest of the part that Read has begun, or the next part, into buf, which
	// has room for PartSize bytes. It returns how many there are, their SHA-256 when they
	// were put, and whether nothing follows. It does not compare the two: the process that
	// uses the bytes has to do so before.
	Part(buf []byte) (n int, digest [sha256.Size]byte, last bool, err error)
}

// Info describes an archive.
type Info struct {
	// Bytes is its length. Digest is in hex the SHA-256 of the SHA-256s of its parts, in
	// their order: the digest names all bytes, and each part can be verified by itself.
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
