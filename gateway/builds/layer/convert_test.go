package layer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"
)

// item is an entry of an archive in a test.
type item struct {
	name, content string
	kind          byte
	records       map[string]string
}

func file(name, content string) item { return item{name: name, content: content, kind: tar.TypeReg} }
func dir(name string) item           { return item{name: name, kind: tar.TypeDir} }

func names(of string, all ...string) item {
	return item{name: of, content: strings.Join(all, "\x00") + "\x00", kind: tar.TypeReg, records: map[string]string{namesRecord: "1"}}
}

var end = item{name: ".", kind: tar.TypeReg, records: map[string]string{endRecord: "1"}}

func archiveOf(t *testing.T, items ...item) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, i := range items {
		h := &tar.Header{Name: i.name, Typeflag: i.kind, Size: int64(len(i.content)), Mode: 0o644, PAXRecords: i.records, Format: tar.FormatPAX}
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

// baseOf is a base whose layers have these names; one that ends with a slash is a folder's.
func baseOf(layers ...[]string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for i, all := range layers {
			for _, name := range all {
				h := &tar.Header{Name: name, Typeflag: tar.TypeReg}
				if strings.HasSuffix(name, "/") {
					h.Typeflag = tar.TypeDir
				}
				if !yield(Entry{i, h}, nil) {
					return
				}
			}
		}
	}
}

// read lists a layer: "name" or "name=content".
func read(t *testing.T, layer io.Reader) (all []string) {
	t.Helper()
	for r := tar.NewReader(layer); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		for record := range h.PAXRecords {
			if !strings.HasPrefix(record, xattrRecord) && record != "path" && record != "mtime" {
				t.Errorf("%s has the record %s", h.Name, record)
			}
		}
		text := h.Name
		if len(content) > 0 {
			text += "=" + string(content)
		}
		all = append(all, text)
	}
}

func TestConvert(t *testing.T) {
	for _, c := range []struct {
		what    string
		archive []item
		base    [][]string
		want    []string
	}{
		{"what is new is written as it is", []item{dir("app"), names("app", "x"), file("app/x", "1"), end}, nil, []string{"app/", "app/x=1"}},
		{
			"a name of the base that a changed folder has no more is deleted",
			[]item{dir("etc"), names("etc", "kept", "new"), file("etc/new", "1"), end},
			[][]string{{"etc/", "etc/kept", "etc/gone", "usr/", "usr/bin/tool"}},
			[]string{"etc/", "etc/new=1", "etc/.wh.gone"},
		},
		{
			"a folder is deleted by its name alone, and one that no entry of its own names",
			[]item{names(".", "etc"), end},
			[][]string{{"etc/", "srv/deep/file", "srv/other"}},
			[]string{".wh.srv"},
		},
		{
			"what the base deleted itself is no deletion",
			[]item{dir("a"), names("a", "y"), end},
			[][]string{{"a/x", "a/y", "b/z"}, {"a/.wh.x", ".wh.b"}},
			[]string{"a/"},
		},
		{
			"an opaque folder of the base hides the layers below, and not its own",
			[]item{dir("a"), names("a"), end},
			[][]string{{"a/old"}, {"a/new", "a/.wh..wh..opq"}},
			[]string{"a/", "a/.wh.new"},
		},
		{
			"what a layer above brings back is there",
			[]item{dir("a"), names("a"), end},
			[][]string{{"a/x"}, {"a/.wh.x"}, {"a/x"}},
			[]string{"a/", "a/.wh.x"},
		},
		{
			"mounts of the builder are neither written nor deleted, nor are the folders around them",
			[]item{
				names(".", "etc"), dir("etc"), names("etc"), file("etc/hosts", "builder"), file("sandlane/bin/sandboxd", "x"), end,
			},
			[][]string{{"proc/", "dev/null", "sys/", "etc/hosts", "etc/resolv.conf", "usr/local/bin/sudo", "run/"}},
			[]string{"etc/"},
		},
	} {
		var b bytes.Buffer
		if err := Convert(&b, archiveOf(t, c.archive...), baseOf(c.base...)); err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if got := read(t, &b); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.what, got, c.want)
		}
	}
}

func TestConvertRefuses(t *testing.T) {
	whole := archiveOf(t, file("a", strings.Repeat("x", 4096)), end).Bytes()
	for _, c := range []struct {
		what    string
		archive []byte
		want    error
	}{
		{"an archive without its end", archiveOf(t, file("a", "1")).Bytes(), ErrCut},
		{"one that is cut", whole[:2000], ErrCut},
		{"a name outside", archiveOf(t, file("../a", "1"), end).Bytes(), ErrMalformed},
		{"an absolute name", archiveOf(t, file("/etc/passwd", "1"), end).Bytes(), ErrMalformed},
		{"a link to a name outside", archiveOf(t, item{name: "a", content: "../b", kind: tar.TypeLink}, end).Bytes(), ErrMalformed},
		{"a device", archiveOf(t, item{name: "a", kind: tar.TypeChar}, end).Bytes(), ErrMalformed},
		{"a file that would delete another", archiveOf(t, file("a/.wh.b", ""), end).Bytes(), ErrName},
	} {
		if err := Convert(io.Discard, bytes.NewReader(c.archive), baseOf()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
	failed := errors.New("the registry is away")
	base := func(yield func(Entry, error) bool) { yield(Entry{}, failed) }
	if err := Convert(io.Discard, archiveOf(t, names("a", "b"), end), base); !errors.Is(err, failed) {
		t.Errorf("a base that cannot be read: %v", err)
	}
}

// Neither the builder nor a base can have the gateway keep names without end.
func TestConvertTooMany(t *testing.T) {
	base := func(yield func(Entry, error) bool) {
		for i := range maxFiles + 1 {
			if !yield(Entry{0, &tar.Header{Name: fmt.Sprint("a/", i), Typeflag: tar.TypeReg}}, nil) {
				return
			}
		}
	}
	if err := Convert(io.Discard, archiveOf(t, names("a"), end), base); !errors.Is(err, ErrTooMany) {
		t.Errorf("a base with too many files: %v", err)
	}
	if err := Convert(io.Discard, archiveOf(t, names("a", make([]string, maxFiles+1)...), end), baseOf()); !errors.Is(err, ErrTooMany) {
		t.Errorf("an archive with too many: %v", err)
	}
}

// Whatever an archive is, what is written has no name outside of the root.
func FuzzConvert(f *testing.F) {
	f.Add([]byte("no archive"))
	f.Fuzz(func(t *testing.T, archive []byte) {
		var b bytes.Buffer
		if Convert(&b, bytes.NewReader(archive), baseOf([]string{"a/b", "../c", "/d"})) != nil {
			return
		}
		for _, name := range read(t, &b) {
			if strings.HasPrefix(name, "/") || strings.HasPrefix(name, "../") {
				t.Errorf("a layer with the name %q", name)
			}
		}
	})
}
