package files

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"syscall"

	"github.com/sandlane/sandlane/sandboxd/access"
	"github.com/sandlane/sandlane/sandboxd/users"
)

// Caller tells the service on whose behalf a request is.
type Caller interface {
	// Named returns a user by name; the empty name is the default user.
	Named(name string) (users.User, error)
	// Workdir is the default working directory; empty means the user's home.
	Workdir() string
}

// Service serves the contents of files. It is safe for concurrent use.
type Service struct {
	caller Caller
	opener func(context.Context, users.User) Opener
}

// New returns a service. opener returns with whose rights the files of a request are opened:
// Local, or another process's.
func New(caller Caller, opener func(context.Context, users.User) Opener) *Service {
	return &Service{caller: caller, opener: opener}
}

// entry describes one uploaded file in an answer.
type entry struct {
	Path     string            `json:"path"`
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

func newEntry(path string, metadata map[string]string) entry {
	return entry{Path: path, Name: filepath.Base(path), Type: "file", Metadata: metadata}
}

// failure is an error with an HTTP status.
type failure struct {
	status  int
	message string
}

func (f failure) Error() string { return f.message }

// Is makes a 404 of another process what it is here.
func (f failure) Is(target error) bool {
	return f.status == http.StatusNotFound && target == fs.ErrNotExist
}

// Failure returns an error that is answered with an HTTP status.
func Failure(status int, message string) error { return failure{status, message} }

func badRequest(message string) error { return failure{http.StatusBadRequest, message} }

// resolve makes a path absolute for a user.
func (s *Service) resolve(u users.User, path string) (string, error) {
	return u.Resolve(path, s.caller.Workdir())
}

// fail answers with the status of an error.
func fail(w http.ResponseWriter, err error) { access.Error(w, Status(err), err.Error()) }

// Status returns the HTTP status of an error.
func Status(err error) int {
	status := http.StatusInternalServerError
	var own failure
	var tooLarge *http.MaxBytesError
	var corrupt flate.CorruptInputError
	switch {
	case errors.As(err, &own):
		status = own.status
	case errors.As(err, &tooLarge):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.As(err, &corrupt):
		status = http.StatusBadRequest
	case errors.Is(err, users.ErrUnknown):
		status = http.StatusUnauthorized
	case errors.Is(err, users.ErrNotPermitted), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		status = http.StatusForbidden
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		status = http.StatusInsufficientStorage
	case errors.Is(err, fs.ErrNotExist):
		status = http.StatusNotFound
	case errors.Is(err, users.ErrPath), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, fs.ErrExist),
		errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ELOOP), errors.Is(err, io.ErrUnexpectedEOF):
		status = http.StatusBadRequest
	}
	return status
}
