package sandboxd

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/sandlane/sandlane/sandboxd/sudo"
)

// install copies the program, and links its sudo to the copy, into the folder bin below dir,
// which another container of the pod sees read-only. Each appears complete or not at all, also
// when an earlier try was cut short.
func install(program, dir string) error {
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	from, err := os.Open(program)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	unfinished, err := os.CreateTemp(bin, ".new-")
	if err != nil {
		return err
	}
	_, err = io.Copy(unfinished, from)
	err = errors.Join(err, unfinished.Chmod(0o755), unfinished.Close())
	for _, name := range []string{"sandboxd", sudo.Name} {
		if err == nil {
			err = replace(unfinished.Name(), filepath.Join(bin, name))
		}
	}
	return errors.Join(err, os.Remove(unfinished.Name()))
}

// replace makes another name of a file, in place of what has that name.
func replace(file, name string) error {
	link := name + ".new"
	_ = os.Remove(link) // of an earlier try
	if err := os.Link(file, link); err != nil {
		return err
	}
	return os.Rename(link, name)
}
