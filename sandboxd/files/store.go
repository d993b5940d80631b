package files

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/sandlane/sandlane/sandboxd/users"
)

// copySize is how much of a body is read and written at once: fewer system calls than
// io.Copy's 32 KiB, and fewer WRITE events for those that watch the file.
const copySize = 256 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// store writes one file in place: programs that have it open, and its hard links, see the new
// content. If the body or the disk ends early, a file that this request made is removed
// again, and one that was there is left with what came. seen, which may be nil, holds
// the paths of the same request.
//
// The user's rights are taken for each step, never while the body comes.
func (s *Service) store(u users.User, path string, body io.Reader, metadata map[string]string, seen map[string]bool) (entry, error) {
	asked, err := s.resolve(u, path)
	if err != nil {
		return entry{}, err
	}
	if seen[asked] {
		return entry{}, badRequest(fmt.Sprintf("path '%s' is there twice in one request", asked))
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
