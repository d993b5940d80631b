package users

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// ErrPath is wrapped by errors of Resolve.
var ErrPath = errors.New("invalid path")

// Resolve makes a path of a request absolute: an empty path means the working directory, ~
// the user's home, and a relative path begins at the working directory, which is the home if
// workdir is empty. A path that no file can have, and the home of a named user (~bob), are
// errors.
func (u User) Resolve(path, workdir string) (string, error) {
	base := workdir
	if base == "" {
		base = u.Home
	}
	switch {
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("%w: a path cannot hold a zero byte", ErrPath)
	case path == "~":
		return u.Home, nil
	case strings.HasPrefix(path, "~/"):
		return filepath.Join(u.Home, path[2:]), nil
	case strings.HasPrefix(path, "~"):
		return "", fmt.Errorf("%w: cannot expand user-specific home dir in '%s': only '~' and '~/…' are expanded; write './%[2]s' for a file of that name", ErrPath, path)
	case filepath.IsAbs(path):
		return filepath.Clean(path), nil
	}
	return filepath.Join(base, path), nil
}
