package bundle

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
)

// folder is a small release: a program, a bundle, a chart and an image in OCI's layout.
func (r *release) folder() string {
	r.t.Helper()
	err := errors.Join(os.WriteFile(filepath.Join(r.dir, "sandlane-linux-amd64"), []byte("the program"), 0o755),
		os.WriteFile(filepath.Join(r.dir, "sandlane-v1.tgz"), []byte("the chart"), 0o600))
	image, imageErr := random.Image(100, 2)
	at, layoutErr := layout.Write(filepath.Join(r.dir, "oci"), empty.Index)
	if err := errors.Join(err, imageErr, layoutErr); err != nil {
		r.t.Fatal(err)
	}
	if err := at.AppendImage(image); err != nil {
		r.t.Fatal(err)
	}
	r.signSums(r.sign)
	return r.dir
}

// signSums makes the sums of the folder's files, and their signature.
func (r *release) signSums(key minisign.PrivateKey) {
	r.t.Helper()
	var sums bytes.Buffer
	for _, name := range r.files() {
		content, err := os.ReadFile(filepath.Join(r.dir, name))
		if err != nil {
			r.t.Fatal(err)
		}
		if !strings.HasPrefix(name, SumsFile) {
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), name)
		}
	}
	err := errors.Join(os.WriteFile(filepath.Join(r.dir, SumsFile), sums.Bytes(), 0o600),
		os.WriteFile(filepath.Join(r.dir, SumsSignature), minisign.Sign(key, sums.Bytes()), 0o600))
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *release) files() (names []string) {
	r.t.Helper()
	err := fs.WalkDir(os.DirFS(r.dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return names
}

// replace writes a file anew until the test's next step, and returns how to undo it.
func (r *release) replace(name string, with []byte) (undo func()) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	was, err := os.ReadFile(path)
	if err := errors.Join(err, os.WriteFile(path, with, 0o600)); err != nil {
		r.t.Fatal(err)
	}
	return func() {
		if err := os.WriteFile(path, was, 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
}

// A byte that is changed in any file of a release is refused, also if whoever changed it wrote
// its new sum down, and signed that with a key of their own.
func TestFlippedByteInAnyFile(t *testing.T) {
	r := newRelease(t)
	_, stranger, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(r.folder(), r.key); err != nil {
		t.Fatal(err)
	}
	files := r.files()
	if len(files) < 10 { // the image alone has six
		t.Fatalf("the release has only %q", files)
	}
	for _, name := range files {
		content, err := os.ReadFile(filepath.Join(r.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{0, len(content) / 2, len(content) - 1} {
			// A comment and a line's end of the signature say nothing; bundle_test.go has each of its bytes.
			if name == SumsSignature && at != len(content)/2 {
				continue
			}
			changed := bytes.Clone(content)
			changed[at] ^= 1
			undo := r.replace(name, changed)
			if err := Verify(r.dir, r.key); err == nil {
				t.Errorf("%s with byte %d changed was taken", name, at)
			}
			if !strings.HasPrefix(name, SumsFile) {
				if err := Verify(r.dir, r.key, name); err == nil {
					t.Errorf("%s with byte %d changed was taken by itself", name, at)
				}
				signature, err := os.ReadFile(filepath.Join(r.dir, SumsSignature))
				if err != nil {
					t.Fatal(err)
				}
				r.signSums(stranger)
				if err := Verify(r.dir, r.key); err == nil || !strings.Contains(err.Error(), "is not signed by this key") {
					t.Errorf("%s changed, with its sum, signed by another key: %v", name, err)
				}
				r.replace(SumsSignature, signature)
				if err := Verify(r.dir, r.key); err == nil || !strings.Contains(err.Error(), "is not signed by this key") {
					t.Errorf("%s changed, with its sum, under the old signature: %v", name, err)
				}
			}
			undo()
			r.signSums(r.sign)
		}
	}
	if err := Verify(r.dir, r.key); err != nil {
		t.Errorf("as it was: %v", err)
	}
}

func TestReleaseOfOtherFiles(t *testing.T) {
	for _, c := range []struct {
		says   string
		change func(r *release) error
		names  []string
	}{
		{"does not know more", func(r *release) error { return os.WriteFile(filepath.Join(r.dir, "more"), nil, 0o600) }, nil},
		{"check sandlane-v1.tgz", func(r *release) error { return os.Remove(filepath.Join(r.dir, "sandlane-v1.tgz")) }, nil},
		{"no plain file", func(r *release) error {
			path := filepath.Join(r.dir, "sandlane-v1.tgz")
			return errors.Join(os.Rename(path, path+".real"), os.Symlink(path+".real", path))
		}, []string{"sandlane-v1.tgz"}},
		{"does not know ../key", func(*release) error { return nil }, []string{"../key"}},
		{"read the release's sums", func(r *release) error { return os.Remove(filepath.Join(r.dir, SumsFile)) }, nil},
		{"read the signature", func(r *release) error { return os.Remove(filepath.Join(r.dir, SumsSignature)) }, nil},
	} {
		r := newRelease(t)
		r.folder()
		if err := c.change(r); err != nil {
			t.Fatal(err)
		}
		if err := Verify(r.dir, r.key, c.names...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
	// Signed lines that name no file below the folder.
	for _, line := range []string{"garbage\n", strings.Repeat("0", 64) + "  /etc/passwd\n"} {
		r := newRelease(t)
		r.folder()
		err := errors.Join(os.WriteFile(filepath.Join(r.dir, SumsFile), []byte(line), 0o600),
			os.WriteFile(filepath.Join(r.dir, SumsSignature), minisign.Sign(r.sign, []byte(line)), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		if err := Verify(r.dir, r.key); err == nil || !strings.Contains(err.Error(), "names no file of the folder") {
			t.Errorf("%q: %v", line, err)
		}
	}
}
