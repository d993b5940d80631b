package filesystem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
	"github.com/sandlane/sandlane/sandboxd/users"
)

// TempPrefix begins the names of entries that Move is still copying. Watchers do not get their
// events.
const TempPrefix = ".sandboxd-"

// Move renames an entry and makes the parents of its new place.
func (s *Service) Move(ctx context.Context, req *connect.Request[filesystempb.MoveRequest]) (*connect.Response[filesystempb.MoveResponse], error) {
	u, source, err := s.resolve(req.Header(), req.Msg.GetSource())
	if err != nil {
		return nil, err
	}
	_, destination, err := s.resolve(req.Header(), req.Msg.GetDestination())
	if err != nil {
		return nil, err
	}
	entry, err := s.describe(u, destination, func() error { return moveEntry(ctx, u, source, destination) })
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystempb.MoveResponse{Entry: entry}), nil
}

// moveEntry renames an entry. If it fails, it removes the parents that it made. Call it, and
// the functions below, with the user's rights.
func moveEntry(ctx context.Context, u users.User, source, destination string) error {
	if _, err := os.Lstat(source); err != nil {
		return wireError(source, err)
	}
	made, err := u.MkdirAll(filepath.Dir(destination))
	if err == nil {
		err = os.Rename(source, destination)
	}
	if errors.Is(err, syscall.EXDEV) {
		err = moveAcross(ctx, source, destination)
	}
	if err != nil {
		for _, dir := range made {
			_ = os.Remove(dir)
		}
	}
	return err
}

// moveAcross moves an entry that the kernel cannot rename: one whose destination is on
// another mount, or a directory of the image that overlayfs has not copied up.
//
// # States
//
//   - copying: the copy has a name of its own beside the destination. If anything fails, or
//     the client leaves, the copy is removed and nothing has changed. In this state the
//     copier also checks, directory by directory, that the source may be removed.
//   - renamed: the copy has been renamed to the destination, in one step. Both are whole.
//   - removed: the source is removed. If its removal fails in spite of the check (because of
//     an attribute that forbids it, or a change meanwhile), the destination stays, since a
//     part of the source may be gone, and the error says so.
//
// If sandboxd ends while it copies, source and destination are as before, and the copy
// stays under its own name.
func moveAcross(ctx context.Context, source, destination string) error {
	from, err := os.OpenRoot(filepath.Dir(source))
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenRoot(filepath.Dir(destination))
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	name, staged := filepath.Base(source), TempPrefix+rand.Text()
	// A volume may be mounted at both places: the copy would replace the source, which is removed
	// then, so that neither is left.
	here, err := from.Stat(".")
	if err != nil {
		return err
	}
	if there, err := to.Stat("."); err != nil {
		return err
	} else if os.SameFile(here, there) && name == filepath.Base(destination) {
		return nil
	}
	c := &copier{ctx: ctx, from: from, to: to, links: map[inode]string{}}
	if err = c.start(name, staged); err == nil {
		err = to.Rename(staged, filepath.Base(destination))
	}
	if err != nil {
		return errors.Join(err, to.RemoveAll(staged))
	}
	if err := from.RemoveAll(name); err != nil {
		return fmt.Errorf("copied to %s, and could not remove all of the old place: %w", destination, err)
	}
	return nil
}
