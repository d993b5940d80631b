package files

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/filesystem"
	"github.com/sandlane/sandlane/sandboxd/users"
)

const (
	newMode  = 0o644
	maxLinks = 40
)

// store writes one file: beside its place and then into it, so that nobody sees
// half of it. seen, which may be nil, holds the paths of the same request.
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
	target, mode := "", fs.FileMode(0)
	err = u.Act(func() (err error) {
		target, mode, err = place(asked)
		return err
	})
	if err != nil {
		return entry{}, err
	}
	if err := replace(u, target, body, metadata, mode); err != nil {
		return entry{}, err
	}
	s.watchers.Wrote(target)
	return newEntry(asked, metadata), nil
}

// place makes the directories of a path and returns where a write to it ends up, and
// with what mode.
func place(asked string) (target string, mode fs.FileMode, err error) {
	if err := os.MkdirAll(filepath.Dir(asked), 0o755); err != nil {
		return "", 0, err
	}
	if target, err = follow(asked); err != nil {
		return "", 0, err
	}
	info, err := os.Stat(target)
	switch {
	case err != nil:
		return target, newMode, nil
	case info.IsDir():
		return "", 0, badRequest(fmt.Sprintf("path '%s' is a directory", asked))
	case !info.Mode().IsRegular():
		return "", 0, badRequest(fmt.Sprintf("path '%s' is not a regular file", asked))
	}
	return target, info.Mode().Perm(), nil
}

// follow returns where a write to path ends up: links are written through, not
// replaced, even those that lead nowhere yet.
func follow(path string) (string, error) {
	for range maxLinks {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, filepath.Base(path))
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // no link
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(dir, target)
		}
		path = target
	}
	return "", syscall.ELOOP
}

// replace writes a file beside its place and then into it. The user's rights are taken
// for each step, never while the body comes.
func replace(u users.User, target string, body io.Reader, metadata map[string]string, mode fs.FileMode) (err error) {
	path := filepath.Join(filepath.Dir(target), filesystem.TempPrefix+rand.Text())
	var temp *os.File
	var exists bool
	err = u.Act(func() (err error) {
		if temp, err = open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600); err != nil {
			_, statErr := os.Stat(target)
			exists = statErr == nil
		}
		return err
	})
	if exists && errors.Is(err, fs.ErrPermission) {
		return overwrite(u, target, body) // the file may be writable where its directory is not
	}
	if err != nil {
		return err
	}
	defer func() {
		_ = temp.Close()
		if err != nil {
			_ = u.Act(func() error { return os.Remove(path) })
		}
	}()
	if _, err := io.Copy(temp, body); err != nil {
		return err
	}
	err = u.Act(func() error { return finish(temp, target, metadata, mode) })
	if !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.EPERM) {
		return err
	}
	// A mount point, such as /etc/hosts in a container, can only be filled, and so can
	// another user's file in a sticky directory.
	if _, err := temp.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := overwrite(u, target, temp); err != nil {
		return err
	}
	return u.Act(func() error { return os.Remove(path) })
}

// finish gives a file that is whole its mode, its metadata and its place.
func finish(temp *os.File, target string, metadata map[string]string, mode fs.FileMode) error {
	if err := temp.Chmod(mode); err != nil {
		return err
	}
	for key, value := range metadata {
		err := unix.Fsetxattr(int(temp.Fd()), filesystem.XattrPrefix+key, []byte(value), 0)
		if err != nil && !errors.Is(err, unix.ENOTSUP) {
			return badRequest(fmt.Sprintf("metadata '%s' cannot be stored: %s", key, err))
		}
	}
	return os.Rename(temp.Name(), target)
}

func overwrite(u users.User, target string, body io.Reader) error {
	f, err := openRegular(u, target, unix.O_WRONLY)
	if err != nil {
		return err
	}
	if err = f.Truncate(0); err == nil {
		_, err = io.Copy(f, body)
	}
	return errors.Join(err, f.Close())
}
