package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// image makes the files of a fresh container.
func image(t *testing.T) string {
	t.Helper()
	base := t.TempDir()
	for _, name := range []string{"etc/", "etc/conf.d/", "home/user/", "opt/tool/bin/", "var/lib/", "data/", "run/e2b/"} {
		must(t, os.MkdirAll(filepath.Join(base, name), 0o755))
	}
	for _, name := range []string{"etc/passwd", "etc/conf.d/a", "etc/conf.d/b", "opt/tool/bin/x", "opt/tool/readme", "var/lib/big", "home/user/.profile"} {
		must(t, os.WriteFile(filepath.Join(base, name), []byte("image "+name), 0o644))
	}
	must(t, os.WriteFile(filepath.Join(base, "run/e2b/id"), []byte(base), 0o644))
	must(t, os.Symlink("etc/passwd", filepath.Join(base, "users")))
	return base
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func treeOf(base string, since time.Time) Tree {
	return Tree{Base: base, Mounts: []Mount{{Path: "/"}, {Path: "/home"}, {Path: "/data", Whole: true}}, Since: since, Skip: []string{"/run/e2b"}}
}

// started returns a time after all that was changed in base before, and not after what is
// changed from now on: by the kernel's clock for files, which ticks every few ms.
func started(t *testing.T, bases ...string) time.Time {
	t.Helper()
	var last time.Time
	for _, base := range bases {
		must(t, filepath.WalkDir(base, func(path string, _ fs.DirEntry, err error) error {
			var stat unix.Stat_t
			must(t, errors.Join(err, unix.Lstat(path, &stat)))
			if at := time.Unix(stat.Ctim.Unix()); at.After(last) {
				last = at
			}
			return nil
		}))
	}
	probe := filepath.Join(t.TempDir(), "probe")
	for {
		must(t, os.WriteFile(probe, nil, 0o600))
		must(t, os.Chmod(probe, 0o600))
		var stat unix.Stat_t
		must(t, unix.Lstat(probe, &stat))
		if at := time.Unix(stat.Ctim.Unix()); at.After(last) {
			return at
		}
	}
}

// seen describes all files of a tree but sandboxd's own.
func seen(t *testing.T, base string) map[string]string {
	t.Helper()
	all := map[string]string{}
	inodes := map[uint64]string{}
	must(t, filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, base)
		if name == "/run/e2b" {
			return fs.SkipDir
		}
		var stat unix.Stat_t
		must(t, unix.Lstat(path, &stat))
		text := fmt.Sprintf("%o %d:%d", stat.Mode, stat.Uid, stat.Gid)
		if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
			text += fmt.Sprintf(" %d", stat.Mtim.Nano())
			if stat.Nlink > 1 {
				if inodes[stat.Ino] == "" {
					inodes[stat.Ino] = name
				}
				text += " as " + inodes[stat.Ino]
			}
		}
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			must(t, err)
			text += " -> " + target
		case d.Type().IsRegular():
			content, err := os.ReadFile(path)
			must(t, err)
			text += " " + string(content)
		}
		if d.Type().IsRegular() || d.IsDir() {
			buf := make([]byte, 100)
			if n, err := unix.Getxattr(path, "user.note=1", buf); err == nil {
				text += " note " + string(buf[:n])
			}
		}
		all[name] = text
		return nil
	}))
	return all
}

func same(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, w := range want {
		if got[name] != w && !imageTime(got[name], w) {
			t.Errorf("%s is %q, want %q", name, got[name], w)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is there: %q", name, got[name])
		}
	}
}

// imageTime reports whether two files of the image differ only in their times: each
// container's was unpacked by itself.
func imageTime(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	if len(x) != len(y) || len(x) < 4 || x[3] != "image" && x[3] != "->" {
		return false
	}
	x[2], y[2] = "", ""
	return slices.Equal(x, y)
}

// change does what users do.
func change(t *testing.T, base string) {
	t.Helper()
	in := func(name string) string { return filepath.Join(base, name) }
	must(t, os.WriteFile(in("home/user/new"), bytes.Repeat([]byte("new"), 100_000), 0o600))
	must(t, os.WriteFile(in("home/user/\xff odd\nname"), nil, 0o4755))
	must(t, os.Chmod(in("home/user/\xff odd\nname"), 0o755|fs.ModeSetuid))
	must(t, os.Link(in("home/user/new"), in("home/user/again")))
	must(t, os.Symlink("/nowhere/at/all", in("home/user/link")))
	must(t, unix.Mkfifo(in("home/user/pipe"), 0o640))
	must(t, os.Remove(in("etc/conf.d/a")))
	must(t, os.RemoveAll(in("var/lib")))
	must(t, os.WriteFile(in("var/lib"), []byte("a file now"), 0o644))
	must(t, os.Rename(in("opt/tool"), in("opt/moved"))) // with old files in it
	must(t, os.Chmod(in("etc/passwd"), 0o600))
	must(t, os.Remove(in("users")))
	must(t, os.Mkdir(in("users"), 0o555))
	must(t, os.MkdirAll(in("data/"+strings.Repeat("deep/", 50)), 0o755))
	must(t, os.WriteFile(in("data/old"), []byte("x"), 0o644))
	old := time.Unix(1_000_000_000, 123456789)
	must(t, os.Chtimes(in("data/old"), old, old)) // its ctime cannot be set back
	if err := unix.Setxattr(in("etc/passwd"), "user.note=1", []byte("a\x00b=c"), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		must(t, os.Chown(in("home/user/new"), 1000, 1001))
		must(t, os.Lchown(in("home/user/link"), 1002, 1003))
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	t.Chdir(base)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: "home/socket"}))
}

// A fresh container of the image gets to be as the changed one, but for sockets.
func TestRoundTrip(t *testing.T) {
	from := image(t)
	to := image(t)
	since := started(t, from, to)
	change(t, from)
	want := seen(t, from)
	delete(want, "/home/socket")
	var data bytes.Buffer
	must(t, Write(t.Context(), &data, treeOf(from, since)))
	if bytes.Contains(data.Bytes(), []byte("image etc/conf.d/b")) {
		t.Error("a file that was not changed is kept")
	}
	for range 2 { // the second time over what it has restored
		must(t, Extract(t.Context(), bytes.NewReader(data.Bytes()), treeOf(to, since)))
		same(t, seen(t, to), want)
	}
	if id, err := os.ReadFile(filepath.Join(to, "run/e2b/id")); err != nil || string(id) != to {
		t.Errorf("sandboxd's own file is %q, %v", id, err)
	}
	if info, err := os.Stat(filepath.Join(to, "users")); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("%v, %v", info, err)
	}
	// What was restored is kept again.
	var again bytes.Buffer
	must(t, Write(t.Context(), &again, treeOf(to, since)))
	third := image(t)
	must(t, Extract(t.Context(), &again, treeOf(third, since)))
	same(t, seen(t, third), want)
}

// What was not changed since the start is not in an archive at all.
func TestNothingChanged(t *testing.T) {
	base := image(t)
	var data bytes.Buffer
	must(t, Write(t.Context(), &data, treeOf(base, started(t, base))))
	names := list(t, data.Bytes())
	if fmt.Sprint(names) != "[data data .]" { // an emptyDir, and its names
		t.Errorf("the archive has %q", names)
	}
}

func list(t *testing.T, data []byte) (names []string) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := r.Next()
		if err != nil {
			return names
		}
		names = append(names, h.Name)
	}
}

// A container of another image is told by what an archive expects of it.
func TestMismatch(t *testing.T) {
	from, to := image(t), image(t)
	since := started(t, from, to)
	must(t, os.WriteFile(filepath.Join(from, "etc/new"), nil, 0o644)) // /etc is kept, /etc/conf.d is of the image
	must(t, os.WriteFile(filepath.Join(from, "etc/conf.d/c"), nil, 0o644))
	var data bytes.Buffer
	must(t, Write(t.Context(), &data, treeOf(from, since)))
	must(t, os.Remove(filepath.Join(to, "etc/passwd")))
	if err := Extract(t.Context(), bytes.NewReader(data.Bytes()), treeOf(to, since)); !errors.Is(err, ErrMismatch) {
		t.Errorf("a file of the image that is missing: %v", err)
	}
	must(t, os.RemoveAll(filepath.Join(to, "etc")))
	must(t, os.Symlink("/tmp", filepath.Join(to, "etc")))
	if err := Extract(t.Context(), bytes.NewReader(data.Bytes()), treeOf(to, since)); !errors.Is(err, ErrMismatch) {
		t.Errorf("a folder of the image that is a link: %v", err)
	}
}

// A cut archive and one that goes on behind its end are errors, and so is a context that
// ended.
func TestCutArchives(t *testing.T) {
	from, to := image(t), image(t)
	since := started(t, from, to)
	change(t, from)
	var data bytes.Buffer
	must(t, Write(t.Context(), &data, treeOf(from, since)))
	for _, n := range []int{100, data.Len() / 2, data.Len() - 2000} {
		if err := Extract(t.Context(), bytes.NewReader(data.Bytes()[:n]), treeOf(to, since)); err == nil {
			t.Errorf("%d of %d bytes were taken", n, data.Len())
		}
	}
	if err := Extract(t.Context(), bytes.NewReader(append(data.Bytes(), 1)), treeOf(to, since)); !errors.Is(err, ErrMalformed) {
		t.Errorf("with a byte behind it: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Write(ctx, &data, treeOf(from, since)); !errors.Is(err, context.Canceled) {
		t.Errorf("Write after the end: %v", err)
	}
	if err := Extract(ctx, &data, treeOf(to, since)); !errors.Is(err, context.Canceled) {
		t.Errorf("Extract after the end: %v", err)
	}
}
