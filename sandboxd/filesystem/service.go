package filesystem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
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
	return &Service{caller: caller, watchers: watchers{named: map[string]*collector{}, live: map[*watcher]struct{}{}, expireAfter: expireAfter}}
}

// Close ends all watchers.
func (s *Service) Close() { s.watchers.close() }

// resolve returns the user of a request and the absolute path it means.
func (s *Service) resolve(header http.Header, path string) (users.User, string, error) {
	if strings.ContainsRune(path, 0) {
		return users.User{}, "", connect.NewError(connect.CodeInvalidArgument, errors.New("a path cannot hold a zero byte"))
	}
	u, err := s.caller.User(header)
	if err != nil {
		return u, "", err
	}
	return u, u.Resolve(path, s.caller.Workdir()), nil
}

// Stat describes one entry.
func (s *Service) Stat(_ context.Context, req *connect.Request[filesystempb.StatRequest]) (*connect.Response[filesystempb.StatResponse], error) {
	_, path, err := s.resolve(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	entry, err := Describe(path, s.caller)
	if err != nil {
		return nil, wireError(path, err)
	}
	return connect.NewResponse(&filesystempb.StatResponse{Entry: entry}), nil
}

// MakeDir makes a directory and its parents for the user.
func (s *Service) MakeDir(_ context.Context, req *connect.Request[filesystempb.MakeDirRequest]) (*connect.Response[filesystempb.MakeDirResponse], error) {
	u, path, err := s.resolve(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("directory already exists: %s", path))
	case err == nil:
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path already exists but it is not a directory: %s", path))
	}
	if err := u.MakeDirs(path); err != nil {
		return nil, wireError(path, err)
	}
	entry, err := Describe(path, s.caller)
	if err != nil {
		return nil, wireError(path, err)
	}
	return connect.NewResponse(&filesystempb.MakeDirResponse{Entry: entry}), nil
}

// Move renames an entry and makes the parents of its new place.
func (s *Service) Move(_ context.Context, req *connect.Request[filesystempb.MoveRequest]) (*connect.Response[filesystempb.MoveResponse], error) {
	u, source, err := s.resolve(req.Header(), req.Msg.GetSource())
	if err != nil {
		return nil, err
	}
	_, destination, err := s.resolve(req.Header(), req.Msg.GetDestination())
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(source); err != nil {
		return nil, wireError(source, err)
	}
	if err := u.MakeDirs(filepath.Dir(destination)); err != nil {
		return nil, wireError(destination, err)
	}
	if err := os.Rename(source, destination); err != nil {
		return nil, wireError(destination, err)
	}
	entry, err := Describe(destination, s.caller)
	if err != nil {
		return nil, wireError(destination, err)
	}
	return connect.NewResponse(&filesystempb.MoveResponse{Entry: entry}), nil
}

// ListDir lists what is below a directory, to a depth of at least one, in the
// order of paths. Symbolic links below it are not followed.
func (s *Service) ListDir(ctx context.Context, req *connect.Request[filesystempb.ListDirRequest]) (*connect.Response[filesystempb.ListDirResponse], error) {
	_, path, err := s.resolve(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, wireError(path, err)
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
				if err := list(name, depth-1); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
		}
		return nil
	}
	if err := list(path, max(1, req.Msg.GetDepth())); err != nil {
		return nil, wireError(path, err)
	}
	return connect.NewResponse(&filesystempb.ListDirResponse{Entries: entries}), nil
}

// Remove removes an entry and all below it. What does not exist is removed already.
func (s *Service) Remove(_ context.Context, req *connect.Request[filesystempb.RemoveRequest]) (*connect.Response[filesystempb.RemoveResponse], error) {
	_, path, err := s.resolve(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	if path == "/" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the root directory cannot be removed"))
	}
	if err := os.RemoveAll(path); err != nil {
		return nil, wireError(path, err)
	}
	return connect.NewResponse(&filesystempb.RemoveResponse{}), nil
}

// wireError gives an error of the file system its Connect code.
func wireError(path string, err error) error {
	code := connect.CodeInternal
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code = connect.CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = connect.CodeCanceled
	case errors.Is(err, fs.ErrNotExist):
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("path not found: %s: %w", path, err))
	case errors.Is(err, fs.ErrPermission):
		code = connect.CodePermissionDenied
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY):
		code = connect.CodeAlreadyExists
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENAMETOOLONG),
		errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ELOOP):
		code = connect.CodeInvalidArgument
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		code = connect.CodeResourceExhausted
	}
	return connect.NewError(code, fmt.Errorf("%s: %w", path, err))
}
