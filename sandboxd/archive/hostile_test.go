package archive

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hostile is a tree whose container has links out of it, and what is beside it.
func hostile(t *testing.T) (tree Tree, outside string) {
	t.Helper()
	dir := t.TempDir()
	base, outside := filepath.Join(dir, "root"), filepath.Join(dir, "outside")
	for _, d := range []string{base + "/home/user", base + "/run/e2b", outside + "/sub"} {
		must(t, os.MkdirAll(d, 0o755))
	}
	for _, f := range []string{outside + "/file", outside + "/sub/file", base + "/run/e2b/id", base + "/home/user/f"} {
		must(t, os.WriteFile(f, []byte("untouched"), 0o644))
	}
	must(t, os.Symlink(outside, base+"/home/out"))
	must(t, os.Symlink("../../outside", base+"/home/rel"))
	must(t, os.Symlink(outside+"/file", base+"/home/file"))
	return Tree{Base: base, Mounts: []Mount{{Path: "/"}, {Path: "/home"}}, Since: time.Now(), Skip: []string{"/run/e2b"}}, outside
}

// untouched fails the test if anything outside of the tree, or sandboxd's own, changed.
func untouched(t *testing.T, tree Tree, outside string) {
	t.Helper()
	for _, f := range []string{outside + "/file", outside + "/sub/file", tree.Base + "/run/e2b/id"} {
		text, err := os.ReadFile(f)
		info, serr := os.Lstat(f)
		if err != nil || serr != nil || string(text) != "untouched" || info.Mode() != 0o644 {
			t.Fatalf("%s is %q, %v, %v", f, text, info, err)
		}
		var stat unix.Stat_t
		if must(t, unix.Lstat(f, &stat)); stat.Nlink != 1 {
			t.Fatalf("%s has a second name", f)
		}
	}
	for dir, want := range map[string]string{outside: "file sub", outside + "/sub": "file", tree.Base + "/run/e2b": "id", filepath.Dir(outside): "outside root"} {
		var names []string
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if got := strings.Join(names, " "); got != want {
			t.Fatalf("%s has %s, want %s", dir, got, want)
		}
		if info, err := os.Lstat(dir); err != nil || dir != filepath.Dir(outside) && info.Mode().Perm() != 0o755 {
			t.Fatalf("%s: %v, %v", dir, info, err)
		}
	}
}

type part struct {
	kind       byte
	name, link string
	records    map[string]string
	content    string
}

func build(t testing.TB, parts ...part) []byte {
	t.Helper()
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	for _, p := range append(parts, part{kind: tar.TypeReg, name: ".", records: map[string]string{endRecord: "1"}}) {
		must(t, w.WriteHeader(&tar.Header{Typeflag: p.kind, Name: p.name, Linkname: p.link, Mode: 0o777, Size: int64(len(p.content)),
			Uid: os.Getuid(), Gid: os.Getgid(), PAXRecords: p.records, Format: tar.FormatPAX}))
		_, err := w.Write([]byte(p.content))
		must(t, err)
	}
	must(t, w.Close())
	return data.Bytes()
}

// Archives that are no sandboxd's are refused, and reach nothing beside the tree.
func TestHostileArchives(t *testing.T) {
	names := map[string]string{namesRecord: "1"}
	for name, parts := range map[string][]part{
		"up":                      {{kind: tar.TypeReg, name: "../outside/file", content: "x"}},
		"up in the middle":        {{kind: tar.TypeReg, name: "home/../../outside/file", content: "x"}},
		"absolute":                {{kind: tar.TypeReg, name: "//outside/file", content: "x"}},
		"no name":                 {{kind: tar.TypeReg, name: "home//f", content: "x"}},
		"through a link":          {{kind: tar.TypeReg, name: "home/out/file", content: "x"}},
		"through a relative link": {{kind: tar.TypeReg, name: "home/rel/file", content: "x"}},
		"deeper through a link":   {{kind: tar.TypeReg, name: "home/out/sub/file", content: "x"}},
		"deeper, relative":        {{kind: tar.TypeReg, name: "home/rel/sub/new", content: "x"}},
		"a folder by a link":      {{kind: tar.TypeDir, name: "home/out/sub/new"}},
		"names by a link":         {{kind: tar.TypeDir, name: "home/out/sub"}, {kind: tar.TypeReg, name: "home/out/sub", records: names}},
		"through its own link":    {{kind: tar.TypeSymlink, name: "home/l", link: "../../outside"}, {kind: tar.TypeReg, name: "home/l/file", content: "x"}},
		"a hard link outside":     {{kind: tar.TypeLink, name: "home/l", link: "../outside/file"}},
		"a hard link by a link":   {{kind: tar.TypeLink, name: "home/l", link: "home/out/file"}},
		"a hard link, deeper":     {{kind: tar.TypeLink, name: "home/l", link: "home/out/sub/file"}},
		"a hard link to its own":  {{kind: tar.TypeLink, name: "l", link: "run/e2b/id"}},
		"sandboxd's own":          {{kind: tar.TypeReg, name: "run/e2b/id", content: "x"}},
		"below sandboxd's own":    {{kind: tar.TypeReg, name: "run/e2b/new", content: "x"}},
		"sandboxd's own, a link":  {{kind: tar.TypeSymlink, name: "run/e2b", link: "/home"}},
		"a mount":                 {{kind: tar.TypeSymlink, name: "home", link: "/run"}},
		"the root":                {{kind: tar.TypeReg, name: ".", content: "x"}},
		"a device":                {{kind: tar.TypeChar, name: "home/null"}},
		"a record":                {{kind: tar.TypeReg, name: "home/f", content: "x", records: map[string]string{"OTHER.x": "1"}}},
		"an attribute":            {{kind: tar.TypeReg, name: "home/f", content: "x", records: map[string]string{xattrRecord + "trusted.x": "1"}}},
		"names of no folder":      {{kind: tar.TypeReg, name: "home", records: names}},
		"names of another folder": {{kind: tar.TypeDir, name: "run"}, {kind: tar.TypeReg, name: "home", records: names}},
		"names twice":             {{kind: tar.TypeDir, name: "home"}, {kind: tar.TypeReg, name: "home", records: names}, {kind: tar.TypeReg, name: "home", records: names}},
		"a name that is a path":   {{kind: tar.TypeDir, name: "home"}, {kind: tar.TypeReg, name: "home", records: names, content: "../x\x00"}},
		"a name that is up":       {{kind: tar.TypeDir, name: "home"}, {kind: tar.TypeReg, name: "home", records: names, content: "..\x00"}},
		"a name that is missing":  {{kind: tar.TypeDir, name: "home"}, {kind: tar.TypeReg, name: "home", records: names, content: "nothing\x00"}},
		"no folder to be in":      {{kind: tar.TypeReg, name: "home/none/f", content: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			tree, outside := hostile(t)
			if err := Extract(t.Context(), bytes.NewReader(build(t, parts...)), tree); err == nil {
				t.Error("it was taken")
			}
			untouched(t, tree, outside)
		})
	}
}

// What is to be removed is removed itself, not what it leads to.
func TestRemovalsFollowNothing(t *testing.T) {
	tree, outside := hostile(t)
	names := map[string]string{namesRecord: "1"}
	data := build(t,
		part{kind: tar.TypeDir, name: "."}, part{kind: tar.TypeReg, name: ".", records: names, content: ""},
		part{kind: tar.TypeDir, name: "home"}, part{kind: tar.TypeReg, name: "home", records: names, content: "f\x00"},
		part{kind: tar.TypeReg, name: "home/f", content: "x"},
	)
	must(t, Extract(t.Context(), bytes.NewReader(data), tree))
	untouched(t, tree, outside)
	entries, err := os.ReadDir(tree.Base + "/home")
	if err != nil || len(entries) != 1 || entries[0].Name() != "f" {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// FuzzExtract: whatever an archive is, nothing outside of the tree changes.
func FuzzExtract(f *testing.F) {
	for _, name := range []string{"home/user/f", "../outside/file", "home/out/file", "home/rel/sub", "run/e2b/id", "home"} {
		for _, kind := range []byte{tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink} {
			f.Add(build(f, part{kind: kind, name: name, link: "home/out/file"}, part{kind: tar.TypeReg, name: name, records: map[string]string{namesRecord: "1"}}))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, outside := hostile(t)
		_ = Extract(t.Context(), bytes.NewReader(data), tree)
		untouched(t, tree, outside)
	})
}
