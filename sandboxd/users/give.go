package users

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Give makes the user the owner of an open file, if the user acts as root.
func (u User) Give(f *os.File) error {
	if !u.AsRoot {
		return nil
	}
	return f.Chown(int(u.UID), int(u.GID))
}

// MkdirAll makes a directory and its missing parents for the user, and returns those that it
// found missing, the deepest first, also if it fails. Call it with the user's rights.
//
// For a user that acts as root it makes and gives each in the folder that it has open: a
// program that puts a link in its place meanwhile gets nothing that is not its own.
func (u User) MkdirAll(path string) (missing []string, err error) {
	dir := path
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil {
			break
		}
		missing = append(missing, dir)
	}
	if !u.AsRoot {
		return missing, os.MkdirAll(path, 0o755)
	}
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	for i := len(missing) - 1; i >= 0; i-- {
		next, err := u.mkdirAt(at, filepath.Base(missing[i]))
		_ = unix.Close(at)
		if err != nil {
			return missing[i+1:], &os.PathError{Op: "mkdir", Path: missing[i], Err: err}
		}
		at = next
	}
	_ = unix.Close(at)
	return missing, nil
}

// mkdirAt makes and gives a directory in an open one, unless it is there by now, and opens it.
func (u User) mkdirAt(at int, name string) (int, error) {
	err := unix.Mkdirat(at, name, 0o755)
	made := err == nil
	if !made && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	if made {
		flags |= unix.O_NOFOLLOW
	}
	next, err := unix.Openat(at, name, flags, 0)
	if err == nil && made {
		if err = unix.Fchown(next, int(u.UID), int(u.GID)); err != nil {
			_ = unix.Close(next)
			_ = unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
		}
	}
	return next, err
}
