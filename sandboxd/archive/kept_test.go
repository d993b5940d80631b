package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// deep makes folders in a folder until their path is longer than the kernel takes at once,
// and returns it and the innermost one.
func deep(t *testing.T, base string) (rel string, fd int) {
	t.Helper()
	fd, err := unix.Open(base, unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	for name := strings.Repeat("d", 200); len(rel) <= 2*unix.PathMax; rel = filepath.Join(rel, name) {
		must(t, unix.Mkdirat(fd, name, 0o755))
		next, err := openat(fd, name, openFolder, 0)
		must(t, err)
		must(t, unix.Close(fd))
		fd = next
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return rel, fd
}

// What has a path that is longer than the kernel takes is kept and restored.
func TestLongPaths(t *testing.T) {
	from, to := image(t), image(t)
	since := started(t, from, to)
	rel, dir := deep(t, filepath.Join(from, "home"))
	must(t, unix.Symlinkat("/nowhere", dir, "link"))
	file, err := unix.Openat(dir, "file", unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o640)
	must(t, err)
	must(t, unix.Close(file))
	must(t, unix.Linkat(dir, "file", dir, "second", 0))
	var data bytes.Buffer
	must(t, Write(t.Context(), &data, treeOf(from, since)))
	for range 2 {
		must(t, Extract(t.Context(), bytes.NewReader(data.Bytes()), treeOf(to, since)))
	}
	home, err := unix.Open(filepath.Join(to, "home"), unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	defer func() { _ = unix.Close(home) }()
	restored, err := openat(home, rel, openFolder, 0)
	must(t, err)
	defer func() { _ = unix.Close(restored) }()
	if names, err := namesOf(restored); err != nil || strings.Join(names, " ") != "file link second" {
		t.Errorf("restored: %q, %v", names, err)
	}
	var stat unix.Stat_t
	if must(t, unix.Fstatat(restored, "second", &stat, 0)); stat.Nlink != 2 || stat.Mode != unix.S_IFREG|0o640 {
		t.Errorf("mode %o, %d names", stat.Mode, stat.Nlink)
	}
}

// A piece of a long path that is a link is not followed.
func TestLongPathsFollowNothing(t *testing.T) {
	tree, outside := hostile(t)
	rel, dir := deep(t, filepath.Join(tree.Base, "home"))
	must(t, unix.Symlinkat(outside, dir, "out"))
	long := "home/" + rel + "/out/" + strings.Repeat("sub/", unix.PathMax) + "file"
	if err := Extract(t.Context(), bytes.NewReader(build(t, part{kind: '0', name: long, content: "x"})), tree); err == nil {
		t.Error("it was taken")
	}
	untouched(t, tree, outside)
}

// A folder that is mounted at two paths is restored with its hard links, and so is one of
// which a part is mounted again (subPath). A link to the root stands for the second mounts.
func TestMountedTwice(t *testing.T) {
	for name, second := range map[string]string{"all of it": "/again/data", "a part of it": "/again/data/part"} {
		t.Run(name, func(t *testing.T) {
			from, to := image(t), image(t)
			for _, base := range []string{from, to} {
				must(t, os.Mkdir(filepath.Join(base, "data/part"), 0o755))
				must(t, os.Symlink(".", filepath.Join(base, "again")))
			}
			since := started(t, from, to)
			must(t, os.WriteFile(filepath.Join(from, "data/part/f"), []byte("data"), 0o644))
			must(t, os.Link(filepath.Join(from, "data/part/f"), filepath.Join(from, "data/part/g")))
			mounts := []Mount{{Path: second, Whole: true}, {Path: "/data", Whole: true}}
			var data bytes.Buffer
			must(t, Write(t.Context(), &data, Tree{Base: from, Mounts: mounts, Since: since}))
			must(t, Extract(t.Context(), bytes.NewReader(data.Bytes()), Tree{Base: to, Mounts: mounts, Since: since}))
			same(t, seen(t, filepath.Join(to, "data")), seen(t, filepath.Join(from, "data")))
			if second == "/again/data" && bytes.Contains(data.Bytes(), []byte("again/data")) {
				t.Error("it is kept twice")
			}
		})
	}
}

// Where a folder that sandboxd needs was replaced no archive is written, since none could
// be restored.
func TestReplacedFolders(t *testing.T) {
	for name, replace := range map[string]func(at string) error{
		"by a file": func(at string) error { return os.WriteFile(at, nil, 0o644) },
		"by a link": func(at string) error { return os.Symlink("/tmp", at) },
		"by a FIFO": func(at string) error { return unix.Mkfifo(at, 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			base := image(t)
			since := started(t, base)
			must(t, os.RemoveAll(filepath.Join(base, "run")))
			var data bytes.Buffer
			must(t, Write(t.Context(), &data, treeOf(base, since))) // it is deleted: that is left out
			must(t, Extract(t.Context(), &data, treeOf(image(t), since)))
			must(t, replace(filepath.Join(base, "run")))
			if err := Write(t.Context(), &data, treeOf(base, since)); !errors.Is(err, ErrReplaced) {
				t.Errorf("%v", err)
			}
		})
	}
}

// readOnlyRoot has f run where base is a mount that nothing can be written to.
func readOnlyRoot(t *testing.T, base string, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount")
	}
	over := make(chan struct{})
	go func() { // its thread has mounts of its own, and ends with it
		defer close(over)
		runtime.LockOSThread()
		err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount(base, base, "", unix.MS_BIND, ""), unix.Mount("", base, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""),
			unix.Mount("tmpfs", base+"/data", "tmpfs", 0, ""))
		if err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-over
}

// With a root that is read-only the emptyDirs are kept and restored; folders of the image
// in which the runtime has made something for its mounts do not count.
func TestReadOnlyRoot(t *testing.T) {
	from, to := image(t), image(t)
	since := started(t, from, to)
	for _, base := range []string{from, to} {
		must(t, errors.Join(os.Mkdir(filepath.Join(base, "mnt"), 0o755), os.Chmod(base, 0o777)))
	}
	var data bytes.Buffer
	readOnlyRoot(t, from, func() {
		err := os.WriteFile(filepath.Join(from, "data/f"), []byte("kept"), 0o644)
		if err := errors.Join(err, Write(t.Context(), &data, treeOf(from, since))); err != nil {
			t.Error(err)
		}
	})
	old := build(t, part{kind: tar.TypeDir, name: "."}) // as a sandboxd wrote it that did not look
	readOnlyRoot(t, to, func() {
		if err := Extract(t.Context(), &data, treeOf(to, since)); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(filepath.Join(to, "data/f")); err != nil || string(text) != "kept" {
			t.Errorf("%q, %v", text, err)
		}
		if err := Extract(t.Context(), bytes.NewReader(old), treeOf(to, since)); err != nil {
			t.Errorf("an older archive: %v", err)
		}
	})
}
