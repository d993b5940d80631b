package users

import (
	"os"
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

// MakeDirs makes a directory and its missing parents and gives those it made to
// the user.
func (u User) MakeDirs(path string) error {
	var missing []string
	for p := path; ; p = filepath.Dir(p) {
		if _, err := os.Stat(p); err == nil || !os.IsNotExist(err) {
			break
		}
		missing = append(missing, p)
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	for _, p := range missing {
		if err := u.Own(p); err != nil {
			return err
		}
	}
	return nil
}

// Own gives a file to the user. Without root there is nothing to give.
func (u User) Own(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Lchown(path, int(u.UID), int(u.GID))
}
