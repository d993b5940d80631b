// Package removal removes folders that code in a sandbox has written to, which os.RemoveAll
// cannot be trusted with:
//
//   - A folder may forbid its owner to write in it, as those of Go's module cache do. Without
//     root nothing in it could be removed. Tree allows its owner everything first.
//   - Folders may lie in each other tens of thousands deep. os.RemoveAll holds a descriptor
//     for each level. Tree holds one for each of deepest levels, and moves what lies deeper up.
//   - A path may be longer than the kernel takes. Tree names each file in its folder.
//
// Each step goes through an os.Root, so that nothing outside the folder is changed or removed
// even if a process still exchanges a folder for a link.
package removal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

const (
	// deepest is how many levels below the removed folder are opened at once, with a descriptor
	// each. Few trees of a real program are deeper.
	deepest = 32
	// many is how many files of a folder are looked at before they are removed.
	many = 1000
)

// Tree removes what is at path, and everything below. That nothing is there is no error, and no
// more is it if another call removes the same. It goes on after an error, so that as little as
// possible is left.
func Tree(path string) error {
	name := filepath.Base(path)
	if name == "." || name == ".." || name == "/" { // no name in a folder; of an empty path too
		return fmt.Errorf("remove %q: %w", path, fs.ErrInvalid)
	}
	parent, err := os.OpenRoot(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = errors.Join(new(tree).remove(parent, name, "", 0), parent.Close())
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// tree is one removal.
type tree struct {
	top   *os.Root // the folder that Tree removes, once it is open
	moved int      // the next name for what is moved up into top
}

// remove removes what in calls name. path is its path from top, level the number of names in it.
func (t *tree) remove(in *os.Root, name, path string, level int) error {
	err := in.Remove(name)
	if unlessGone(err) == nil {
		return nil
	}
	info, noInfo := in.Lstat(name)
	if errors.Is(noInfo, fs.ErrNotExist) {
		return nil
	}
	if noInfo != nil || !info.IsDir() {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o700 != 0o700 {
		_ = in.Chmod(name, mode|0o700) // what cannot be changed is refused below
	}
	if level > deepest {
		return unlessGone(t.moveUp(path))
	}
	dir, err := in.OpenRoot(name)
	if err != nil {
		return unlessGone(err)
	}
	if level == 0 {
		t.top = dir
	}
	if err := errors.Join(t.empty(dir, path, level), dir.Close()); err != nil {
		return err
	}
	return unlessGone(in.Remove(name))
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// empty removes the content of a folder.
func (t *tree) empty(dir *os.Root, path string, level int) error {
	for {
		names, err := some(dir)
		if err != nil || len(names) == 0 {
			return err
		}
		left := 0
		for _, name := range names {
			if failed := t.remove(dir, name, filepath.Join(path, name), level+1); failed != nil {
				left++
				err = failed
			}
		}
		if left == len(names) {
			return err
		}
	}
}

// some returns names of files in a folder, of a large one not all. It leaves nothing open.
func some(dir *os.Root) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, unlessGone(err)
	}
	names, err := f.Readdirnames(many)
	if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) { // the latter: it is removed already
		err = nil
	}
	return names, errors.Join(err, f.Close())
}

// moveUp moves a folder into top, where empty finds it.
func (t *tree) moveUp(path string) error {
	for {
		err := t.top.Rename(path, strconv.Itoa(t.moved))
		t.moved++
		// The name may be that of a folder with content, or of a file; a part of the path that has
		// become a file gives the same error.
		if !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTDIR) {
			return err
		}
		if _, taken := t.top.Lstat(strconv.Itoa(t.moved - 1)); taken != nil {
			return err
		}
	}
}
