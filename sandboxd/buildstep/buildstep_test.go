package buildstep

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

type item struct {
	name, content string
	kind          byte
	mode          int64
}

func archiveOf(t testing.TB, items ...item) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, i := range items {
		h := &tar.Header{Name: i.name, Typeflag: i.kind, Size: int64(len(i.content)), Mode: i.mode}
		if h.Mode == 0 {
			h.Mode = 0o640
		}
		if i.kind == tar.TypeSymlink || i.kind == tar.TypeLink {
			h.Linkname, h.Size, i.content = i.content, 0, ""
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(i.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// tree lists what is below a folder: content, "->target", or "/" for a folder.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, p)
		switch {
		case err != nil || rel == ".":
			return err
		case d.IsDir():
			all[rel] = "/"
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(p)
			all[rel] = "->" + target
			return err
		default:
			content, err := os.ReadFile(p)
			all[rel] = string(content)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestCopy(t *testing.T) {
	app := []item{{"app", "", tar.TypeDir, 0o755}, {"app/a", "1", tar.TypeReg, 0}, {"app/deep/b", "2", tar.TypeReg, 0}, {"app/l", "a", tar.TypeSymlink, 0}, {"app/h", "app/a", tar.TypeLink, 0}}
	appBelow := func(at string) map[string]string {
		return map[string]string{at + "a": "1", at + "deep": "/", at + "deep/b": "2", at + "l": "->a", at + "h": "1"}
	}
	with := func(more map[string]string, m map[string]string) map[string]string { maps.Copy(m, more); return m }
	one := []item{{"sub/one", "1", tar.TypeReg, 0}}
	for _, c := range []struct {
		what, source, to string
		items            []item
		want             map[string]string
	}{
		{"a file to a name", "sub/one", "/x/two", one, map[string]string{"x": "/", "x/two": "1"}},
		{"a file into a folder that is named so", "sub/one", "/x/", one, map[string]string{"x": "/", "x/one": "1"}},
		{"a file into a folder that is there", "sub/one", "/there", one, map[string]string{"there/one": "1"}},
		{"the content of a folder", "app", "/x", app, with(map[string]string{"x": "/"}, appBelow("x/"))},
		{"the same with a slash and dots", "./app/", "/x/", app, with(map[string]string{"x": "/"}, appBelow("x/"))},
		{"all", ".", "/x", app, with(map[string]string{"x": "/", "x/app": "/"}, appBelow("x/app/"))},
		{"a pattern", "sub/o*", "/x", one, map[string]string{"x": "/", "x/one": "1"}},
		{"a pattern at the start", "**/one", "/x", one, map[string]string{"x": "/", "x/sub": "/", "x/sub/one": "1"}},
		{"a file that is there twice", "app", "/x", append(app, item{"app/a", "app/a", tar.TypeLink, 0}), with(map[string]string{"x": "/"}, appBelow("x/"))},
		{"in place of a link", "sub/one", "/link", one, map[string]string{"link": "1"}},
	} {
		dir := t.TempDir()
		if err := errors.Join(os.Mkdir(dir+"/there", 0o755), os.Symlink("/nowhere", dir+"/link")); err != nil {
			t.Fatal(err)
		}
		f := Files{Source: c.source, Destination: dir + c.to, UID: os.Getuid(), GID: os.Getgid()}
		if err := Copy(archiveOf(t, c.items...), f); err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		want := with(c.want, map[string]string{"there": "/", "link": "->/nowhere"})
		if got := tree(t, dir); !maps.Equal(got, want) {
			t.Errorf("%s:\n got %v\nwant %v", c.what, got, want)
		}
	}
}

// Modes are the archive's, or that of the step for all; a compressed archive is one too.
func TestCopyModes(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := z.Write(archiveOf(t, item{"a", "", tar.TypeDir, 0o700}, item{"a/x", "1", tar.TypeReg, 0o604}).Bytes())
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[fs.FileMode][2]fs.FileMode{0: {0o700, 0o604}, 0o444: {0o544, 0o444}} {
		dir := t.TempDir()
		if err := Copy(bytes.NewReader(zipped.Bytes()), Files{Source: ".", Destination: dir, UID: os.Getuid(), GID: os.Getgid(), Mode: mode}); err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"/a", "/a/x"} {
			if info, err := os.Stat(dir + name); err != nil || info.Mode().Perm() != want[i] {
				t.Errorf("mode %o of %s: %v, %v, want %o", mode, name, info.Mode(), err, want[i])
			}
		}
	}
}

// errReplaced: the link is replaced by a folder, which is no error.
var errReplaced = errors.New("replaced")

// The image's folders, and its links to folders, stay as they are: most images have /bin as one.
func TestCopyOverTheImage(t *testing.T) {
	dir := t.TempDir()
	err := errors.Join(os.MkdirAll(dir+"/usr/bin", 0o755), os.Symlink("usr/bin", dir+"/bin"), os.WriteFile(dir+"/usr/bin/sh", []byte("sh"), 0o700),
		os.Mkdir(dir+"/tmp", 0o700), os.Chmod(dir+"/tmp", 0o777|fs.ModeSticky))
	if err != nil {
		t.Fatal(err)
	}
	upload := archiveOf(t, item{"root", "", tar.TypeDir, 0o755}, item{"root/bin", "", tar.TypeDir, 0o750}, item{"root/bin/tool", "tool", tar.TypeReg, 0},
		item{"root/tmp", "", tar.TypeDir, 0o755}, item{"root/new/below", "", tar.TypeReg, 0}, item{"root/new", "", tar.TypeDir, 0o711})
	if err := Copy(upload, Files{Source: "root", Destination: dir, UID: os.Getuid(), GID: os.Getgid()}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"usr": "/", "usr/bin": "/", "usr/bin/sh": "sh", "usr/bin/tool": "tool", "bin": "->usr/bin", "tmp": "/", "new": "/", "new/below": ""}
	if got := tree(t, dir); !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	for name, want := range map[string]fs.FileMode{"usr/bin": 0o755, "tmp": 0o777 | fs.ModeSticky, "new": 0o711} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want|fs.ModeDir {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
}

// A hostile archive ends in an error, and leaves what is outside of the destination alone.
func TestCopyHostile(t *testing.T) {
	for _, c := range []struct {
		what  string
		items []item
		files Files
		want  error
	}{
		{"a name that leads out", []item{{"../x", "1", tar.TypeReg, 0}}, Files{}, ErrKind},
		{"an absolute name", []item{{"/x", "1", tar.TypeReg, 0}}, Files{}, ErrKind},
		{"a device", []item{{"x", "", tar.TypeChar, 0}}, Files{}, ErrKind},
		{"a disk", []item{{"x", "", tar.TypeBlock, 0}}, Files{}, ErrKind},
		{"a pipe", []item{{"x", "", tar.TypeFifo, 0}}, Files{}, ErrKind},
		{"a hard link upwards", []item{{"a", "1", tar.TypeReg, 0}, {"x", "../secret", tar.TypeLink, 0}}, Files{}, nil},
		{"an absolute hard link", []item{{"a", "1", tar.TypeReg, 0}, {"x", "/etc/passwd", tar.TypeLink, 0}}, Files{}, nil},
		{"a file without a name", []item{{"", "1", tar.TypeReg, 0}, {"x", "1", tar.TypeReg, 0}}, Files{}, ErrKind},
		{"a source that is a file and a folder", []item{{"app", "1", tar.TypeReg, 0}, {"app/x", "1", tar.TypeReg, 0}}, Files{Source: "app"}, ErrKind},
		{"a file through a link that leads out", []item{{"l", "..", tar.TypeSymlink, 0}, {"l/outside", "1", tar.TypeReg, 0}}, Files{}, errReplaced},
		{"a hard link to what is outside", []item{{"l", "..", tar.TypeSymlink, 0}, {"x", "l/secret", tar.TypeLink, 0}}, Files{}, nil},
		{"too many files", []item{{"a", "", tar.TypeReg, 0}, {"b", "", tar.TypeReg, 0}}, Files{MaxFiles: 1}, ErrTooMuch},
		{"too many bytes", []item{{"a", "123", tar.TypeReg, 0}}, Files{MaxBytes: 2}, ErrTooMuch},
		{"nothing", nil, Files{}, ErrNothing},
		{"other files than the source's", []item{{"other", "1", tar.TypeReg, 0}}, Files{Source: "app"}, ErrNothing},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(dir+"/secret", []byte("s"), 0o600); err != nil {
			t.Fatal(err)
		}
		f := c.files
		if f.Source == "" {
			f.Source = "."
		}
		f.Destination, f.UID, f.GID = dir+"/to", os.Getuid(), os.Getgid()
		err := Copy(archiveOf(t, c.items...), f)
		if replaced := errors.Is(c.want, errReplaced); err == nil && !replaced || !replaced && c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
		names := slices.Sorted(maps.Keys(tree(t, dir)))
		if slices.ContainsFunc(names, func(name string) bool { return name != "secret" && name != "to" && !strings.HasPrefix(name, "to/") }) {
			t.Errorf("%s left %q", c.what, names)
		}
	}
	if err := Copy(strings.NewReader("no archive"), Files{Source: ".", Destination: t.TempDir()}); err == nil {
		t.Error("what is no archive was unpacked")
	}
}

// Whatever an upload is, nothing outside of the destination is touched, and the bounds hold.
func FuzzCopy(f *testing.F) {
	f.Add([]byte("no archive"))
	for _, items := range [][]item{
		{{"a/b", "1", tar.TypeReg, 0}, {"a", "", tar.TypeDir, 0}, {"x", "a/b", tar.TypeLink, 0}},
		{{"../secret", "evil", tar.TypeReg, 0}, {"/secret", "evil", tar.TypeReg, 0}},
		{{"l", "..", tar.TypeSymlink, 0}, {"l/secret", "evil", tar.TypeReg, 0}},
		{{"l", "..", tar.TypeSymlink, 0}, {"x", "l/secret", tar.TypeLink, 0}, {"x", "evil", tar.TypeReg, 0}},
		{{"c", "", tar.TypeChar, 0}},
	} {
		f.Add(archiveOf(f, items...).Bytes())
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		const maxBytes, maxFiles = 1 << 16, 64
		dir := t.TempDir()
		if err := os.WriteFile(dir+"/secret", []byte("s"), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = Copy(bytes.NewReader(archive), Files{ // it may be refused
			Source: ".", Destination: dir + "/to", UID: os.Getuid(), GID: os.Getgid(), MaxBytes: maxBytes, MaxFiles: maxFiles,
		})
		size := 0
		for name, content := range tree(t, dir) {
			if name != "secret" && name != "to" && !strings.HasPrefix(name, "to/") || name == "secret" && content != "s" {
				t.Errorf("outside is %q with %q", name, content)
			}
			size += len(content)
		}
		if size > maxBytes+1<<16 { // with the links' targets, and names of folders
			t.Errorf("%d bytes", size)
		}
	})
}

func TestAddUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("giving a home away needs root")
	}
	for _, c := range []struct{ what, passwd, group, wantPasswd, wantGroup string }{
		{"an image without users", "", "", "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::", "user:x:1000:\n"},
		{"one whose 1000 is taken", "root:x:0:0::/:/bin/sh\nnode:x:1000:1000::/:/bin/sh\n", "node:x:1000:\nx:x:1001:\n", "root:x:0:0::/:/bin/sh\nnode:x:1000:1000::/:/bin/sh\nuser:x:1002:1002::", "node:x:1000:\nx:x:1001:\nuser:x:1002:\n"},
		{"one that has the group", "root:x:0:0::/:/bin/sh\n", "user:x:50:\n", "root:x:0:0::/:/bin/sh\nuser:x:1000:50::", "user:x:50:\n"},
		{"one that has the user", "user:x:7:7::/:/bin/sh\n", "", "user:x:7:7::/:/bin/sh\n", ""},
	} {
		etc, home := t.TempDir(), t.TempDir()
		for file, text := range map[string]string{"passwd": c.passwd, "group": c.group} {
			if text != "" {
				if err := os.WriteFile(etc+"/"+file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 2 { // the second time it is there
			if err := AddUser(etc, home, "user"); err != nil {
				t.Fatalf("%s: %v", c.what, err)
			}
		}
		passwd, _ := os.ReadFile(etc + "/passwd")
		group, _ := os.ReadFile(etc + "/group")
		if !strings.HasPrefix(string(passwd), c.wantPasswd) || strings.Count("\n"+string(passwd), "\nuser:") != 1 || string(group) != c.wantGroup {
			t.Errorf("%s:\n%s%s", c.what, passwd, group)
		}
		if _, err := os.Stat(home + "/user"); (err == nil) != (c.what != "one that has the user") {
			t.Errorf("%s: the home: %v", c.what, err)
		}
	}
	for _, bad := range []string{"", "a:b", "../x", "A", "x\ny"} {
		if err := AddUser(t.TempDir(), t.TempDir(), bad); err == nil {
			t.Errorf("the user %q was added", bad)
		}
	}
}

func TestOwner(t *testing.T) {
	etc := t.TempDir()
	if err := errors.Join(os.WriteFile(etc+"/passwd", []byte("root:x:0:0::/:/bin/sh\nu:x:7:8::/:/bin/sh\n"), 0o644), os.WriteFile(etc+"/group", []byte("g:x:9:\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][2]int{"root": {0, 0}, "u": {7, 8}, "u:g": {7, 9}, "7": {7, 8}, "12": {12, 12}, "u:33": {7, 33}, "5:g": {5, 9}} {
		if uid, gid, err := Owner(etc, text); err != nil || uid != want[0] || gid != want[1] {
			t.Errorf("%s: %d:%d, %v", text, uid, gid, err)
		}
	}
	for _, text := range []string{"nobody", "u:nobody", ""} {
		if uid, gid, err := Owner(etc, text); err == nil {
			t.Errorf("%q is %d:%d", text, uid, gid)
		}
	}
}
