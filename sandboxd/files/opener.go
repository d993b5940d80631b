package files

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/users"
)

// Opener opens files with the rights that one request has.
type Opener interface {
	// Read opens a regular file for reading.
	Read(path string) (*os.File, error)
	// Find opens the file to which a path leads for its description alone.
	Find(path string) (*os.File, error)
	// Write opens a regular file for writing, empty and with this metadata. It makes a missing
	// one, with its folders.
	Write(path string, metadata map[string]string) (*Written, error)
	// Remove removes files, of which some may be gone.
	Remove(paths []string) error
}

// Written is a file that Write has opened.
type Written struct {
	File     *os.File
	Metadata map[string]string // that is stored: none if the file system stores none
	// End removes the file if it does not stay and Write has made it. Call it once, after the
	// end of the writing.
	End func(stays bool) error
}

// Local returns an Opener that opens files in this process, with a user's rights.
func Local(u users.User) Opener { return local{u} }

type local struct{ user users.User }

func (l local) Read(path string) (*os.File, error) { return openRegular(l.user, path) }

func (l local) Find(path string) (f *os.File, err error) {
	err = l.user.Act(func() (err error) {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err == nil {
			f = os.NewFile(uintptr(fd), path)
		}
		return err
	})
	return f, err
}

func (l local) Write(path string, metadata map[string]string) (*Written, error) {
	var to *target
	err := l.user.Act(func() (err error) {
		if to, err = openTarget(l.user, path); err != nil {
			return err
		}
		if err = l.user.Give(to.file); err == nil {
			metadata, err = setMetadata(to.file, metadata)
		}
		if err == nil {
			err = to.empty()
		}
		if err != nil {
			to.abandon()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Written{File: to.file, Metadata: metadata, End: func(stays bool) error {
		if stays {
			return nil
		}
		return l.user.Act(func() error { to.abandon(); return nil })
	}}, nil
}

func (l local) Remove(paths []string) error {
	return l.user.Act(func() error {
		for _, path := range paths {
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return nil
	})
}
