package archive

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// These are about files that are kept easily and were hard to restore: the pod that they
// come from is given up once they are kept.

// keepAndRestore moves what has changed from one container to another.
func keepAndRestore(t *testing.T, from, to Tree) {
	t.Helper()
	var data bytes.Buffer
	must(t, Write(t.Context(), &data, from))
	must(t, Extract(t.Context(), &data, to))
}

// A file may be in folders whose path is longer than the kernel takes at once.
func TestPathsLongerThanTheKernelTakes(t *testing.T) {
	from, to := image(t), image(t)
	since := started(t, from, to)
	fd, err := unix.Open(filepath.Join(from, "home"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	name := strings.Repeat("n", 250)
	const depth = 2*unix.PathMax/250 + 2
	for range depth {
		must(t, unix.Mkdirat(fd, name, 0o755))
		child, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, errors.Join(err, unix.Close(fd)))
		fd = child
	}
	must(t, errors.Join(unix.Symlinkat("target", fd, "deep"), unix.Close(fd)))
	keepAndRestore(t, treeOf(from, since), treeOf(to, since))
	root, err := unix.Open(filepath.Join(to, "home"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer func() { _ = unix.Close(root) }()
	dir, err := openat(root, strings.TrimSuffix(strings.Repeat(name+"/", depth), "/"), unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	defer func() { _ = unix.Close(dir) }()
	if target, err := readlink(dir, "deep"); err != nil || target != "target" {
		t.Errorf("the link in the deepest folder: %q, %v", target, err)
	}
}

// A process that may not write in another user's folder restores a file of its own there,
// which it has changed in place.
func TestFilesInFoldersOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to have folders of another user")
	}
	from, to := image(t), image(t)
	for _, base := range []string{from, to} {
		app := filepath.Join(base, "opt/app")
		must(t, os.Mkdir(app, 0o755))
		for _, name := range []string{"db", "linked"} {
			must(t, os.WriteFile(filepath.Join(app, name), []byte("of the image, and longer"), 0o600))
		}
		must(t, os.Link(filepath.Join(app, "linked"), filepath.Join(app, "too")))
		must(t, os.Chown(app, 1000, 1000))
	}
	since := started(t, from, to)
	for _, name := range []string{"db", "linked"} {
		must(t, os.WriteFile(filepath.Join(from, "opt/app", name), []byte("changed"), 0o600))
	}
	lacking(t, func() { keepAndRestore(t, treeOf(from, since), treeOf(to, since)) }, unix.CAP_DAC_OVERRIDE, unix.CAP_CHOWN, unix.CAP_FOWNER)
	same(t, seen(t, to), seen(t, from))
}

// Two mounts may show the same files, as two mounts of one emptyDir do: a file with two
// names is restored below both.
func TestLinksBelowTwoMounts(t *testing.T) {
	from, to := image(t), image(t)
	since := started(t, from, to)
	tree := func(base string) Tree {
		tree := treeOf(base, since)
		tree.Mounts = append(tree.Mounts, Mount{Path: "/var/lib", Whole: true})
		return tree
	}
	for _, base := range []string{from, to} {
		bind(t, filepath.Join(base, "data"), filepath.Join(base, "var/lib"), 0)
	}
	must(t, os.WriteFile(filepath.Join(from, "data/a"), []byte("a"), 0o600))
	must(t, os.Link(filepath.Join(from, "data/a"), filepath.Join(from, "data/b")))
	keepAndRestore(t, tree(from), tree(to))
	for _, name := range []string{"data/a", "data/b", "var/lib/a", "var/lib/b"} {
		if text, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(text) != "a" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

// A folder of a read-only layer whose time has changed, as by a mount point that was made
// in it, needs no restore.
func TestReadOnlyLayer(t *testing.T) {
	from, to := image(t), image(t)
	since := started(t, from, to)
	must(t, os.WriteFile(filepath.Join(from, "home/user/new"), nil, 0o600))
	must(t, os.Chtimes(filepath.Join(from, "etc"), since, since)) // its ctime is new
	bind(t, filepath.Join(to, "etc"), filepath.Join(to, "etc"), unix.MS_RDONLY)
	tree := func(base string) Tree {
		tree := treeOf(base, since)
		tree.Mounts = append(tree.Mounts, Mount{Path: "/etc"})
		return tree
	}
	keepAndRestore(t, tree(from), tree(to))
}

// bind shows a folder at another path, until the test ends.
func bind(t *testing.T, what, where string, flags uintptr) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	must(t, unix.Mount(what, where, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(where, unix.MNT_DETACH)) })
	if flags != 0 {
		must(t, unix.Mount("", where, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""))
	}
}

// Whatever replaces a folder in which sandboxd has files cannot be restored, for those stay.
func TestReplacedFolderOfSandboxd(t *testing.T) {
	base := image(t)
	since := started(t, base)
	must(t, os.Rename(filepath.Join(base, "run"), filepath.Join(base, "moved")))
	must(t, os.Symlink("moved", filepath.Join(base, "run")))
	if err := Write(t.Context(), io.Discard, treeOf(base, since)); !errors.Is(err, ErrReplaced) {
		t.Errorf("%v", err)
	}
}
