package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/users"
)

const (
	newMode  = 0o644
	maxLinks = 40
	// maxTries bounds how often openTarget begins anew because the file appeared or
	// went away between two of its steps.
	maxTries = 10
)

// target is a file that is being written.
type target struct {
	file *os.File
	path string // of file; its last element is no symbolic link if made is set
	// made is the info of a file that this request made, and removes again if it fails; nil
	// for a file that existed.
	made fs.FileInfo
}

// openTarget opens the file of a path for writing, and keeps its content. It makes a missing
// file, with its directories. It follows symbolic links and does not replace them, also links
// whose target is missing. Call it with the user's rights.
func openTarget(u users.User, asked string) (*target, error) {
	var err error
	for range maxTries {
		var info fs.FileInfo
		if info, err = os.Stat(asked); err == nil {
			var f *os.File
			f, err = openKnown(asked, info, unix.O_WRONLY)
			switch {
			case err == nil:
				return &target{file: f, path: asked}, nil
			case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.ETXTBSY):
				return replaceTarget(asked, info, err)
			}
		} else if errors.Is(err, fs.ErrNotExist) {
			var to *target
			if to, err = makeTarget(u, asked); err == nil {
				return to, nil
			}
		}
		if !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, err
}

// makeTarget makes a file that is missing.
func makeTarget(u users.User, asked string) (*target, error) {
	if _, err := u.MkdirAll(filepath.Dir(asked)); err != nil {
		return nil, err
	}
	path, err := follow(asked)
	if err != nil {
		return nil, err
	}
	return create(path)
}

// create makes a file at a path where there is none, not even a link.
func create(path string) (*target, error) {
	f, err := open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, newMode)
	if err != nil {
		return nil, err
	}
	made, err := f.Stat()
	if err == nil {
		err = refuseKernel(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &target{file: f, path: path, made: made}, nil
}

// replaceTarget does what `cp -f` does with a file that cannot be written, because it belongs
// to another user or is a running program: if the rights of the directory allow it, it
// removes the file and makes it anew, with its mode. Programs that have it open keep the old
// one. refused is the error of opening it.
func replaceTarget(asked string, info fs.FileInfo, refused error) (*target, error) {
	path, err := follow(asked)
	if err != nil {
		return nil, refused
	}
	if now, err := os.Lstat(path); err != nil || !os.SameFile(now, info) || os.Remove(path) != nil {
		return nil, refused
	}
	to, err := create(path)
	if err != nil {
		return nil, err
	}
	if err := to.file.Chmod(info.Mode().Perm()); err != nil {
		to.abandon()
		return nil, err
	}
	return to, nil
}

// empty removes the content of a file that existed.
func (t *target) empty() error {
	if t.made != nil {
		return nil
	}
	return t.file.Truncate(0)
}

// abandon closes the file, and removes it if this request made it and it still has its
// name. Call with the user's rights.
func (t *target) abandon() {
	if t.made != nil {
		if now, err := os.Lstat(t.path); err == nil && os.SameFile(now, t.made) {
			_ = os.Remove(t.path)
		}
	}
	_ = t.file.Close()
}

// follow returns the path of the file to which a write to path leads, after all symbolic
// links. The file may be missing.
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
