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
// store takes the user's rights for each step, but not while it waits for the body.
func (s *Service) store(u users.User, path string, body io.Reader, metadata map[string]string, seen map[string]bool) (entry, error) {
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
	var to *target
	err = u.Act(func() (err error) {
		if to, err = openTarget(asked); err != nil {
			return err
		}
		if metadata, err = setMetadata(to.file, metadata); err == nil {
			err = to.empty()
		}
		if err != nil {
			to.abandon()
		}
		return err
	})
	if err != nil {
		return entry{}, err
	}
	if err = fill(to.file, body); err == nil {
		err = to.file.Close()
	}
	if err != nil {
		return entry{}, errors.Join(err, u.Act(func() error { to.abandon(); return nil }))
	}
	return newEntry(asked, metadata), nil
}

// fill writes a body to a file.
func fill(f io.Writer, body io.Reader) error {
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	_, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{body}, buf[:])
	return err
}
