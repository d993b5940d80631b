package files

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/sandlane/sandlane/sandboxd/users"
)

// copySize is how many bytes of a body are read and written at once. It takes fewer system
// calls than io.Copy's 32 KiB, and causes fewer WRITE events for watchers of the file.
const copySize = 256 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// store writes one file in place: programs that have it open, and its hard links, see the new
// content. If the body breaks off or the disk is full, a file that this request made is
// removed again, and one that existed keeps the part that was written. seen, which may be
// nil, has the paths of the same request.
//
// store has the rights of the opener for each step, but not while it waits for the body.
func (s *Service) store(u users.User, rights Opener, path string, body io.Reader, metadata map[string]string, seen map[string]bool) (entry, error) {
	asked, err := s.resolve(u, path)
	if err != nil {
		return entry{}, err
	}
	if seen[asked] {
		return entry{}, badRequest(fmt.Sprintf("path '%s' occurs twice in one request", asked))
	}
	if seen != nil {
		seen[asked] = true
	}
	to, err := rights.Write(asked, metadata)
	if err != nil {
		return entry{}, err
	}
	err = errors.Join(fill(to.File, body), to.File.Close())
	if err = errors.Join(err, to.End(err == nil)); err != nil {
		return entry{}, err
	}
	return newEntry(asked, to.Metadata), nil
}

// fill writes a body to a file.
func fill(f io.Writer, body io.Reader) error {
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	_, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{body}, buf[:])
	return err
}
