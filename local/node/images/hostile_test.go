package images

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// noDevices checks that there is no device file below a folder.
func noDevices(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeDevice != 0 {
			t.Errorf("%s is a device", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A registry that sends other bytes of a layer than the manifest's digest names is found out, and
// nothing is left.
func TestWrongDigest(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("unpacking gives files to their owners, which needs root")
	}
	image := imageOf(t, layerOf(t, file{name: "v", content: "1"}))
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	other, err := layerOf(t, file{name: "v", content: "2"}).Compressed()
	if err != nil {
		t.Fatal(err)
	}
	forged, err := io.ReadAll(other)
	if err != nil {
		t.Fatal(err)
	}
	honest := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/blobs/"+digest.String()) {
			_, _ = w.Write(forged) // the client may be gone
			return
		}
		honest.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s := newShop(t, Options{})
	s.host = strings.TrimPrefix(server.URL, "http://")
	if _, err := s.store.Ensure(t.Context(), s.push("a:1", image), Always, nil); err == nil || !strings.Contains(err.Error(), "layer 1 of 1") {
		t.Errorf("%v", err)
	}
	s.nothingLeft()
}

// Whatever a layer is, nothing outside of the image's folder is touched, the bounds hold, and there
// is no device.
func FuzzUnpack(f *testing.F) {
	if os.Getuid() != 0 {
		f.Skip("unpacking gives files to their owners, which needs root")
	}
	f.Add([]byte("no archive"))
	for _, files := range [][]file{
		{{name: "a/b", content: "1"}, {name: "a/.wh.b"}, {name: "a/.wh..wh..opq"}},
		{{name: "../outside", content: "evil"}, {name: "/../outside", content: "evil"}},
		{{name: "l", kind: tar.TypeSymlink, link: ".."}, {name: "l/outside", content: "evil"}, {name: "l/.wh.outside"}},
		{{name: "h", kind: tar.TypeLink, link: "../outside"}, {name: "h", content: "evil"}},
		{{name: "c", kind: tar.TypeChar}, {name: "p", kind: tar.TypeFifo}},
	} {
		plain, err := layerOf(f, files...).Uncompressed()
		if err != nil {
			f.Fatal(err)
		}
		archive, err := io.ReadAll(plain)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(archive)
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		const maxBytes, maxFiles = 1 << 16, 64
		dir := t.TempDir()
		root, outside := filepath.Join(dir, "root"), filepath.Join(dir, "outside")
		if err := os.Mkdir(root, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(outside, []byte("safe"), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil })
		if err != nil {
			return
		}
		id, err := l.DiffID()
		if err != nil {
			id = v1.Hash{} // it is not read to its end
		}
		u := unpacker{root: root, bytes: maxBytes, files: maxFiles, folders: map[string]bool{}}
		_ = u.layer(context.Background(), l, id) // it may be refused
		files, bytes := -1, int64(0)             // but for the root itself
		err = filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			files++
			info, err := d.Info()
			if err == nil && info.Mode().IsRegular() {
				bytes += info.Size()
			}
			return err
		})
		if err != nil || files > maxFiles || bytes > maxBytes {
			t.Errorf("%d files with %d bytes, %v", files, bytes, err)
		}
		noDevices(t, root)
		beside, err := os.ReadDir(dir)
		if content, _ := os.ReadFile(outside); err != nil || len(beside) != 2 || string(content) != "safe" {
			t.Errorf("outside are %v, with %q: %v", beside, content, err)
		}
	})
}
