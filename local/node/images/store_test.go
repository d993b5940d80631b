package images

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"log"
)

// file is one entry of a layer.
type file struct {
	name, content, link string
	kind                byte // zero: a regular file, or a folder if name ends in /
	mode                int64
}

func layerOf(t testing.TB, files ...file) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Typeflag: f.kind, Linkname: f.link, Size: int64(len(f.content)), Mode: 0o644, ModTime: time.Unix(1, 0)}
		switch {
		case f.kind == 0 && strings.HasSuffix(f.name, "/"):
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		case f.kind == 0:
			h.Typeflag = tar.TypeReg
		}
		if f.mode != 0 {
			h.Mode = f.mode
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func imageOf(t testing.TB, layers ...v1.Layer) v1.Image {
	t.Helper()
	image, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{"/run"}, Env: []string{"A=1"}}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	return image
}

// shop is a real registry on loopback and a store.
type shop struct {
	t     *testing.T
	host  string
	store *Store
	dir   string
}

func newShop(t *testing.T, o Options) *shop {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("unpacking gives files to their owners, which needs root")
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	o.Dir = filepath.Join(t.TempDir(), "images")
	store, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return &shop{t, strings.TrimPrefix(server.URL, "http://"), store, o.Dir}
}

func (s *shop) push(tag string, image v1.Image) string {
	s.t.Helper()
	ref, err := name.ParseReference(s.host + "/" + tag)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		s.t.Fatal(err)
	}
	return ref.Name()
}

func (s *shop) want(path, content string) {
	s.t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != content {
		s.t.Errorf("%s: %q, %v; want %q", path, b, err, content)
	}
}

// nothingLeft checks that a refused image left no folder.
func (s *shop) nothingLeft() {
	s.t.Helper()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			s.t.Errorf("left over: %s", e.Name())
		}
	}
}

// Layers are applied over one another: files are replaced, whiteouts remove, hard links and
// links to folders hold.
func TestLayers(t *testing.T) {
	s := newShop(t, Options{})
	ref := s.push("a:1", imageOf(t,
		layerOf(t, file{name: "usr/lib/"}, file{name: "usr/lib/x", content: "1"}, file{name: "lib", kind: tar.TypeSymlink, link: "usr/lib"},
			file{name: "gone", content: "1"}, file{name: "dir/"}, file{name: "dir/old", content: "1"}, file{name: "null", kind: tar.TypeChar},
			file{name: "run", content: "go", mode: 0o4755}),
		layerOf(t, file{name: "lib/y", content: "2"}, file{name: ".wh.gone"}, file{name: "dir/.wh..wh..opq"}, file{name: "dir/new", content: "2"},
			file{name: "hard", kind: tar.TypeLink, link: "usr/lib/x"}, file{name: "var/run", kind: tar.TypeSymlink, link: "/run"}),
	))
	image, err := s.store.Ensure(t.Context(), ref, Always, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.want(image.Root+"/usr/lib/x", "1")
	s.want(image.Root+"/usr/lib/y", "2")
	s.want(image.Root+"/dir/new", "2")
	s.want(image.Root+"/hard", "1")
	for _, gone := range []string{"gone", "dir/old", "null"} {
		if _, err := os.Lstat(filepath.Join(image.Root, gone)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", gone, err)
		}
	}
	if info, err := os.Stat(image.Root + "/run"); err != nil || info.Mode()&os.ModeSetuid == 0 {
		t.Errorf("run: %v, %v", info, err)
	}
	if image.Config.Entrypoint[0] != "/run" || !strings.HasPrefix(image.Digest, "sha256:") {
		t.Errorf("%+v", image)
	}
}

// A folder counts once, however many files are in it.
func TestDeepFoldersCountOnce(t *testing.T) {
	s := newShop(t, Options{MaxFiles: 100})
	var files []file
	for i := range 60 {
		files = append(files, file{name: fmt.Sprintf("%sf%d", strings.Repeat("d/", 20), i), content: "1"})
	}
	if _, err := s.store.Ensure(t.Context(), s.push("a:1", imageOf(t, layerOf(t, files...))), Always, nil); err != nil {
		t.Error(err)
	}
}

// A tag that moved is seen with again alone; without, the registry is not asked.
func TestTagMoves(t *testing.T) {
	s := newShop(t, Options{})
	ref := s.push("a:1", imageOf(t, layerOf(t, file{name: "v", content: "1"})))
	first, err := s.store.Ensure(t.Context(), ref, IfNotPresent, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.push("a:1", imageOf(t, layerOf(t, file{name: "v", content: "2"})))
	same, err := s.store.Ensure(t.Context(), ref, IfNotPresent, nil)
	if err != nil || same.Digest != first.Digest || same.Root != first.Root {
		t.Errorf("%+v, %v", same, err)
	}
	s.want(same.Root+"/v", "1")
	moved, err := s.store.Ensure(t.Context(), ref, Always, nil)
	if err != nil || moved.Digest == first.Digest {
		t.Fatalf("%+v, %v", moved, err)
	}
	s.want(moved.Root+"/v", "2")
	s.want(first.Root+"/v", "1") // what runs goes on
}

// Twenty pods that start at once unpack an image once.
func TestUnpackedOnce(t *testing.T) {
	s := newShop(t, Options{})
	ref := s.push("a:1", imageOf(t, layerOf(t, file{name: "v", content: "1"})))
	var all sync.WaitGroup
	var mu sync.Mutex
	pulls := 0
	for range 20 {
		all.Go(func() {
			image, err := s.store.Ensure(t.Context(), ref, Always, func(int64, int64) { mu.Lock(); pulls++; mu.Unlock() })
			if err != nil {
				t.Error(err)
				return
			}
			s.want(image.Root+"/v", "1")
		})
	}
	all.Wait()
	if pulls != 1 {
		t.Errorf("the layer was read %d times", pulls)
	}
}

// A hostile image ends in one error or stays below its folder; nothing of it is left.
func TestHostileImages(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("safe"), 0o600); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", 20)
	for name, tc := range map[string]struct {
		files []file
		fails error // nil: it may be unpacked, below its folder
	}{
		"a path upwards":           {files: []file{{name: up + outside[1:], content: "evil"}}},
		"an absolute path":         {files: []file{{name: outside, content: "evil"}}},
		"a link upwards":           {files: []file{{name: "l", kind: tar.TypeSymlink, link: up + filepath.Dir(outside)[1:]}, {name: "l/outside", content: "evil"}}},
		"an absolute link":         {files: []file{{name: "l", kind: tar.TypeSymlink, link: filepath.Dir(outside)}, {name: "l/outside", content: "evil"}}},
		"a link as a file":         {files: []file{{name: "l", kind: tar.TypeSymlink, link: outside}, {name: "l", content: "evil"}}},
		"a whiteout upwards":       {files: []file{{name: up + filepath.Dir(outside)[1:] + "/.wh.outside"}}},
		"a whiteout through links": {files: []file{{name: "l", kind: tar.TypeSymlink, link: filepath.Dir(outside)}, {name: "l/.wh.outside"}}},
		"devices":                  {files: []file{{name: "c", kind: tar.TypeChar}, {name: "b", kind: tar.TypeBlock}}},
		"too many bytes":           {files: []file{{name: "zeros", content: strings.Repeat("\x00", 2<<20)}}, fails: ErrTooLarge},
		"too many files":           {files: manyFiles(200), fails: ErrTooLarge},
		"too many folders":         {files: []file{{name: strings.Repeat("d/", 200) + "f"}}, fails: ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, Options{MaxBytes: 1 << 20, MaxFiles: 100})
			ref := s.push("evil:1", imageOf(t, layerOf(t, tc.files...)))
			_, err := s.store.Ensure(t.Context(), ref, Always, nil)
			if tc.fails != nil && !errors.Is(err, tc.fails) {
				t.Errorf("%v, want %v", err, tc.fails)
			}
			if err != nil {
				s.nothingLeft()
			}
			s.want(outside, "safe")
			noDevices(t, s.dir)
		})
	}
	t.Run("a hard link to a file outside", func(t *testing.T) {
		s := newShop(t, Options{})
		ref := s.push("evil:1", imageOf(t, layerOf(t, file{name: "h", kind: tar.TypeLink, link: outside}, file{name: "h", content: "evil"})))
		if image, err := s.store.Ensure(t.Context(), ref, Always, nil); err == nil {
			s.want(image.Root+"/h", "evil")
		}
		s.want(outside, "safe")
	})
}

func manyFiles(n int) (files []file) {
	for i := range n {
		files = append(files, file{name: "f" + strings.Repeat("x", i%50) + string(rune('a'+i%26)) + time.Duration(i).String()})
	}
	return files
}

// An image of another platform, one that is not there, and a name that is none are refused.
func TestNoSuchImage(t *testing.T) {
	s := newShop(t, Options{})
	config := &v1.ConfigFile{OS: "linux", Architecture: "s390x", RootFS: v1.RootFS{Type: "layers"}}
	other, err := mutate.ConfigFile(empty.Image, config)
	if err != nil {
		t.Fatal(err)
	}
	ref := s.push("other:1", other)
	for reference, want := range map[string]string{
		ref: "s390x", s.host + "/none:1": "pull " + s.host + "/none:1", "UPPER case": "not a reference",
	} {
		if _, err := s.store.Ensure(t.Context(), reference, Always, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", reference, err)
		}
	}
	s.nothingLeft()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.store.Ensure(ctx, ref, Always, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
}

// A sparse file's zeros are in no byte of the layer, and count all the same.
func TestSparseFileIsBounded(t *testing.T) {
	s := newShop(t, Options{MaxBytes: 1 << 20})
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	// GNU sparse format 1.0: the map of one piece at the end of a huge file comes first.
	sparse := "1\n1152921504606846976\n0\n"
	sparse += strings.Repeat("\x00", 512-len(sparse))
	h := &tar.Header{Name: "GNUSparseFile.0/f", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(sparse)), Format: tar.FormatPAX, PAXRecords: map[string]string{
		"SANDLANE.x": "1",
	}}
	if err := w.WriteHeader(h); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, sparse); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// The writer refuses the records of sparse files: they are put in place of another of the
	// same length, in the block before the file's header.
	raw := b.Bytes()
	old := []byte("16 SANDLANE.x=1\n")
	at := bytes.Index(raw, old)
	if at < 0 {
		t.Fatalf("no record in %q", raw[:1024])
	}
	records := []byte("22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n21 GNU.sparse.name=f\n43 GNU.sparse.realsize=1152921504606846976\n")
	copy(raw[at:], records)
	// The size of the block with the records, and the checksum of its header.
	header := raw[at-512 : at]
	copy(header[124:136], fmt.Sprintf("%011o\x00", len(records)))
	copy(header[148:156], "        ")
	sum := 0
	for _, c := range header {
		sum += int(c)
	}
	copy(header[148:156], fmt.Sprintf("%06o\x00 ", sum))
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Ensure(t.Context(), s.push("a:1", imageOf(t, l)), Always, nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
	s.nothingLeft()
}

// A store is closed to other users, and with Never nothing is pulled.
func TestStoreIsOurs(t *testing.T) {
	s := newShop(t, Options{})
	if info, err := os.Stat(s.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	ref := s.push("a:1", imageOf(t, layerOf(t, file{name: "v", content: "1"})))
	if _, err := s.store.Ensure(t.Context(), ref, Never, nil); !errors.Is(err, ErrNotHere) {
		t.Errorf("%v", err)
	}
	if _, err := s.store.Ensure(t.Context(), ref, Always, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Ensure(t.Context(), ref, Never, nil); err != nil {
		t.Error(err)
	}
}

// A layer that is not what the configuration names is refused, whatever its compressed digest.
func TestWrongDiffID(t *testing.T) {
	s := newShop(t, Options{})
	image := imageOf(t, layerOf(t, file{name: "v", content: "1"}))
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.RootFS.DiffIDs[0].Hex = strings.Repeat("0", 64)
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Ensure(t.Context(), s.push("a:1", image), Always, nil); !errors.Is(err, ErrDigest) {
		t.Errorf("%v", err)
	}
	s.nothingLeft()
}
