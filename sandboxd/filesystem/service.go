package filesystem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"connectrpc.com/connect"

	"github.com/sandlane/sandlane/sandboxd/filesystempb"
	"github.com/sandlane/sandlane/sandboxd/users"
)

// Caller tells the service on whose behalf a request is.
type Caller interface {
	Namer
	// User returns the user of a request; its errors are Connect errors.
	User(header http.Header) (users.User, error)
	// Workdir is the default working directory; empty means the user's home.
	Workdir() string
}

// Service implements filesystempb.FilesystemHandler. It is safe for concurrent
// use.
type Service struct {
	caller   Caller
	watchers watchers
}

var _ filesystempb.FilesystemHandler = (*Service)(nil)

// New returns a service.
func New(caller Caller) *Service {
	return &Service{caller: caller, watchers: watchers{named: map[string]*collector{}, live: map[*watcher]*userEvents{}, notifiers: map[string]*userEvents{}, expireAfter: expireAfter}}
}

// Close ends all watchers.
func (s *Service) Close() { s.watchers.close() }

// resolve returns the user of a request and the absolute path it means.
func (s *Service) resolve(header http.Header, path string) (users.User, string, error) {
	u, err := s.caller.User(header)
	if err != nil {
		return u, "", err
	}
	if path, err = u.Resolve(path, s.caller.Workdir()); err != nil {
		return u, "", connect.NewError(connect.CodeInvalidArgument, err)
	}
	return u, path, nil
}

// Stat describes one entry.
func (s *Service) Stat(_ context.Context, req *connect.Request[filesystempb.StatRequest]) (*connect.Response[filesystempb.StatResponse], error) {
	u, path, err := s.resolve(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	entry, err := s.describe(u, path, nil)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystempb.StatResponse{Entry: entry}), nil
}

// MakeDir makes a directory and its parents for the user.
func (s *Service) MakeDir(_ context.Context, req *connect.Request[filesystempb.MakeDirRequest]) (*connect.Response[filesystempb.MakeDirResponse], error) {
	u, path, err := s.resolve(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	entry, err := s.describe(u, path, func() error {
		switch info, err := os.Stat(path); {
		case err == nil && info.IsDir():
			return connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("directory already exists: %s", path))
		case err == nil:
			return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path already exists but it is not a directory: %s", path))
		}
		_, err := u.MkdirAll(path)
		return err
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystempb.MakeDirResponse{Entry: entry}), nil
}

// describe runs change, which may be nil, with the user's rights, and then describes the
// entry at path. Its errors are Connect errors.
func (s *Service) describe(u users.User, path string, change func() error) (entry *filesystempb.EntryInfo, err error) {
	err = u.Act(func() (err error) {
		if change != nil {
			if err := change(); err != nil {
				return err
			}
		}
		entry, err = Describe(path, s.caller)
		return err
	})
	return entry, wireError(path, err)
}

// ListDir lists the entries below a directory, to a depth of at least one, in the order of
// their paths. It does not follow symbolic links below the directory. It lists directories
// that the user may not read, but not their entries.
func (s *Service) ListDir(ctx context.Context, req *connect.Request[filesystempb.ListDirRequest]) (*connect.Response[filesystempb.ListDirResponse], error) {
	u, path, err := s.resolve(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	var entries []*filesystempb.EntryInfo
	err = u.Act(func() (err error) {
		entries, err = s.list(ctx, path, max(1, req.Msg.GetDepth()))
		return err
	})
	if err != nil {
		return nil, wireError(path, err)
	}
	return connect.NewResponse(&filesystempb.ListDirResponse{Entries: entries}), nil
}

// list describes the entries below a directory, with this thread's rights.
func (s *Service) list(ctx context.Context, path string, depth uint32) ([]*filesystempb.EntryInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path is not a directory: %s", path))
	}
	namer := cachedNamer{Namer: s.caller, known: map[[2]uint32][2]string{}}
	var entries []*filesystempb.EntryInfo
	var list func(dir string, depth uint32) error
	list = func(dir string, depth uint32) error {
		children, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, child := range children {
			if err := ctx.Err(); err != nil {
				return err
			}
			name := filepath.Join(dir, child.Name())
			entry, err := Describe(name, namer)
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed meanwhile
			}
			if err != nil {
				return err
			}
			entries = append(entries, entry)
			if child.IsDir() && depth > 1 {
				if err := list(name, depth-1); ignoreHidden(err) != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := list(path, depth); err != nil {
		return nil, err
	}
	return entries, nil
}

// Remove removes an entry and all entries below it. It succeeds if there is no such entry.
func (s *Service) Remove(_ context.Context, req *connect.Request[filesystempb.RemoveRequest]) (*connect.Response[filesystempb.RemoveResponse], error) {
	u, path, err := s.resolve(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	if path == "/" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the root directory cannot be removed"))
	}
	if err := u.Act(func() error { return os.RemoveAll(path) }); err != nil {
		return nil, wireError(path, err)
	}
	return connect.NewResponse(&filesystempb.RemoveResponse{}), nil
}

// wireError turns an error of the file system into a Connect error with its code. Connect
// errors stay as they are.
func wireError(path string, err error) error {
	if answer := (*connect.Error)(nil); err == nil || errors.As(err, &answer) {
		return err
	}
	code := connect.CodeInternal
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code = connect.CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = connect.CodeCanceled
	case errors.Is(err, fs.ErrNotExist):
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("path not found: %s: %w", path, err))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		code = connect.CodePermissionDenied
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY):
		code = connect.CodeAlreadyExists
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENAMETOOLONG),
		errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ELOOP):
		code = connect.CodeInvalidArgument
	case errors.Is(err, syscall.EBUSY):
		code = connect.CodeFailedPrecondition
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		code = connect.CodeResourceExhausted
	}
	return connect.NewError(code, fmt.Errorf("%s: %w", path, err))
}
