package users

import (
	"path/filepath"
	"strings"
)

// Resolve makes a path of a request absolute: empty means the working directory,
// ~ the user's home, and what is relative begins at the working directory, which
// is the home when workdir is empty.
func (u User) Resolve(path, workdir string) string {
	base := workdir
	if base == "" {
		base = u.Home
	}
	switch {
	case path == "~":
		return u.Home
	case strings.HasPrefix(path, "~/"):
		return filepath.Join(u.Home, path[2:])
	case filepath.IsAbs(path):
		return filepath.Clean(path)
	}
	return filepath.Join(base, path)
}
