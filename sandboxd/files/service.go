package files

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
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

// Watchers are told of every file that was written, by its path without
// symbolic links.
type Watchers interface {
	Wrote(path string)
}

// Service serves the contents of files. It is safe for concurrent use.
type Service struct {
	caller   Caller
	watchers Watchers
}

// New returns a service.
func New(caller Caller, watchers Watchers) *Service {
	return &Service{caller: caller, watchers: watchers}
}

// entry is what an upload answers for each file.
type entry struct {
	Path     string            `json:"path"`
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

func newEntry(path string, metadata map[string]string) entry {
	return entry{Path: path, Name: filepath.Base(path), Type: "file", Metadata: metadata}
}

// failure is an error that has a status.
type failure struct {
	status  int
	message string
}

func (f failure) Error() string { return f.message }

func badRequest(message string) error { return failure{http.StatusBadRequest, message} }

// resolve makes a path absolute for a user.
func (s *Service) resolve(u users.User, path string) (string, error) {
	if strings.ContainsRune(path, 0) {
		return "", badRequest("a path cannot hold a zero byte")
	}
	return u.Resolve(path, s.caller.Workdir()), nil
}

// fail answers with the status of an error.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var own failure
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &own):
		status = own.status
	case errors.As(err, &tooLarge):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, users.ErrUnknown):
		status = http.StatusUnauthorized
	case errors.Is(err, users.ErrNotPermitted), errors.Is(err, fs.ErrPermission):
		status = http.StatusForbidden
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		status = http.StatusInsufficientStorage
	case errors.Is(err, fs.ErrNotExist):
		status = http.StatusNotFound
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENAMETOOLONG),
		errors.Is(err, syscall.ELOOP), errors.Is(err, io.ErrUnexpectedEOF):
		status = http.StatusBadRequest
	}
	access.Error(w, status, err.Error())
}
