package files

import (
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
	if err := u.MakeDirs(filepath.Dir(asked)); err != nil {
		return entry{}, err
	}
	target, err := follow(asked)
	if err != nil {
		return entry{}, err
	}
	mode := fs.FileMode(newMode)
	info, err := os.Stat(target)
	switch {
	case err == nil && info.IsDir():
		return entry{}, badRequest(fmt.Sprintf("path '%s' is a directory", asked))
	case err == nil && !info.Mode().IsRegular():
		return entry{}, badRequest(fmt.Sprintf("path '%s' is not a regular file", asked))
	case err == nil:
		mode = info.Mode().Perm()
	}
	if err := replace(u, target, body, metadata, mode); err != nil {
		return entry{}, err
	}
	s.watchers.Wrote(target)
	return newEntry(asked, metadata), nil
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

func replace(u users.User, target string, body io.Reader, metadata map[string]string, mode fs.FileMode) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(target), filesystem.TempPrefix+"*")
	if errors.Is(err, fs.ErrPermission) {
		if _, statErr := os.Stat(target); statErr == nil {
			return overwrite(target, body) // the file may be writable where its directory is not
		}
	}
	if err != nil {
		return err
	}
	defer func() {
		_ = temp.Close()
		if err != nil {
			_ = os.Remove(temp.Name())
		}
	}()
	if _, err := io.Copy(temp, body); err != nil {
		return err
	}
	if err := temp.Chmod(mode); err != nil {
		return err
	}
	for key, value := range metadata {
		err := unix.Fsetxattr(int(temp.Fd()), filesystem.XattrPrefix+key, []byte(value), 0)
		if err != nil && !errors.Is(err, unix.ENOTSUP) {
			return badRequest(fmt.Sprintf("metadata '%s' cannot be stored: %s", key, err))
		}
	}
	if err := u.Own(temp.Name()); err != nil {
		return err
	}
	err = os.Rename(temp.Name(), target)
	if !errors.Is(err, syscall.EBUSY) {
		return err
	}
	// A mount point, such as /etc/hosts in a container, can only be filled.
	if _, err := temp.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := overwrite(target, temp); err != nil {
		return err
	}
	return os.Remove(temp.Name())
}

func overwrite(target string, body io.Reader) error {
	f, err := os.OpenFile(target, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if err = refuseKernel(f); err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = io.Copy(f, body)
	}
	return errors.Join(err, f.Close())
}
