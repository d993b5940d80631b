package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"

	"github.com/sandlane/sandlane/test/bubble"
)

var build = Build{Version: "v1", OS: "linux", Arch: "amd64"}

// release is a bundle of two programs, its file and keys.
type release struct {
	t     *testing.T
	dir   string // of the release
	cache string // that it is unpacked to
	key   minisign.PublicKey
	sign  minisign.PrivateKey
}

var programs = map[string]string{"kube/v1/etcd": "etcd's program", "envoy/envoy-1": strings.Repeat("envoy", 50)}

func newRelease(t *testing.T) *release {
	t.Helper()
	r := &release{t: t, dir: t.TempDir(), cache: t.TempDir()}
	var err error
	if r.key, r.sign, err = minisign.GenerateKey(rand.Reader); err != nil {
		t.Fatal(err)
	}
	r.put(r.make(r.sign))
	return r
}

// make returns the bytes of the bundle.
func (r *release) make(key minisign.PrivateKey) []byte {
	r.t.Helper()
	from := r.t.TempDir()
	for path, content := range programs {
		name := filepath.Join(from, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o600)); err != nil {
			r.t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := Write(&b, from, []string{"kube/v1/etcd", "envoy/envoy-1"}, build, key); err != nil {
		r.t.Fatal(err)
	}
	return b.Bytes()
}

func (r *release) put(content []byte) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, build.Name()), content, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *release) fill(change func(*Options)) error {
	o := Options{From: r.dir, Key: r.key, Build: build, CacheDir: r.cache}
	if change != nil {
		change(&o)
	}
	return Fill(r.t.Context(), o)
}

// unpacked are the files of the cache.
func (r *release) unpacked() (all []string) {
	r.t.Helper()
	err := filepath.WalkDir(r.cache, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(path, "/bundles/") {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// A bundle is taken from a file, a folder and a URL, once.
func TestFill(t *testing.T) {
	r := newRelease(t)
	server := httptest.NewServer(http.FileServer(http.Dir(r.dir)))
	t.Cleanup(server.Close)
	for _, from := range []string{r.dir, filepath.Join(r.dir, build.Name()), server.URL, server.URL + "/", server.URL + "/" + build.Name()} {
		r.cache = t.TempDir()
		var said []string
		for range 2 {
			err := r.fill(func(o *Options) { o.From, o.Progress = from, func(line string) { said = append(said, line) } })
			if err != nil {
				t.Fatalf("%s: %v", from, err)
			}
		}
		if all := strings.Join(said, "\n"); strings.Count(all, "is unpacked") != 1 {
			t.Errorf("%s: it was unpacked again:\n%s", from, all)
		}
		for path, content := range programs {
			name := filepath.Join(r.cache, path)
			info, err := os.Stat(name)
			if err != nil || info.Mode() != 0o755 {
				t.Fatalf("%s: %v, %v", path, info, err)
			}
			if b, err := os.ReadFile(name); err != nil || string(b) != content {
				t.Errorf("%s: %.20q, %v", path, b, err)
			}
		}
	}
	// What was removed or cut short since comes back.
	if err := os.WriteFile(filepath.Join(r.cache, "kube/v1/etcd"), []byte("cut"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.fill(nil); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(r.cache, "kube/v1/etcd")); err != nil || string(b) != programs["kube/v1/etcd"] {
		t.Errorf("%q, %v", b, err)
	}
}

func TestSameBytes(t *testing.T) {
	r := newRelease(t)
	if !bytes.Equal(r.make(r.sign), r.make(r.sign)) {
		t.Error("two bundles of the same files differ")
	}
}

// A bundle of another build or key is refused with a sentence, and nothing of it is there.
func TestRefused(t *testing.T) {
	r := newRelease(t)
	other, _, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(r.dir, build.Name())
	for what, c := range map[string]struct {
		change func(*Options)
		says   string
	}{
		"another key":      {func(o *Options) { o.Key = other }, ErrSignature.Error()},
		"another version":  {func(o *Options) { o.From, o.Build.Version = name, "v2" }, "the bundle is for sandlane v1 for linux/amd64, and this is sandlane v2"},
		"another machine":  {func(o *Options) { o.From, o.Build.Arch = name, "arm64" }, "this is sandlane v1 for linux/arm64"},
		"no such file":     {func(o *Options) { o.From = t.TempDir() }, "open the bundle"},
		"no bundle at all": {func(o *Options) { o.From = "bundle_test.go" }, "read the bundle"},
	} {
		if err := r.fill(c.change); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", what, err, c.says)
		}
	}
	if all := r.unpacked(); len(all) > 0 {
		t.Errorf("left: %v", all)
	}
}

// A byte that is changed anywhere in the bundle is noticed: no program with it gets its name.
func TestFlippedBytes(t *testing.T) {
	r := newRelease(t)
	zipped, err := gzip.NewReader(bytes.NewReader(r.make(r.sign)))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(zipped)
	if err != nil {
		t.Fatal(err)
	}
	noticed := 0
	for at := 0; at < len(plain); at += 7 {
		changed := bytes.Clone(plain)
		changed[at] ^= 1
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.NoCompression)
		if _, err := w.Write(changed); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		r.put(b.Bytes())
		r.cache = t.TempDir()
		err := r.fill(nil)
		for _, path := range r.unpacked() {
			rel, _ := filepath.Rel(r.cache, path)
			if content, readErr := os.ReadFile(path); readErr != nil || string(content) != programs[rel] {
				t.Fatalf("byte %d: %s has other content (%v)", at, rel, err)
			}
		}
		if err != nil { // else it was padding, or an attribute that is not read
			noticed++
		}
	}
	if noticed == 0 {
		t.Error("no change was noticed")
	}
}

// Every changed byte of the manifest and of what its signature says is refused. The signature's
// first line is a comment that nobody signs, and its base64 has bits that say nothing.
func TestFlippedBytesOfTheSignature(t *testing.T) {
	r := newRelease(t)
	zipped, err := gzip.NewReader(bytes.NewReader(r.make(r.sign)))
	if err != nil {
		t.Fatal(err)
	}
	entries := tar.NewReader(zipped)
	text, err := small(entries, manifestFile)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := small(entries, signatureFile)
	if err != nil {
		t.Fatal(err)
	}
	said := func(signature []byte) string {
		var s minisign.Signature
		if err := s.UnmarshalText(signature); err != nil {
			return err.Error()
		}
		return fmt.Sprint(s.Algorithm, s.KeyID, s.TrustedComment, s.Signature, s.CommentSignature)
	}
	if _, err := read(text, signature, r.key, build); err != nil {
		t.Fatal(err)
	}
	for at := range text {
		changed := bytes.Clone(text)
		changed[at] ^= 1
		if _, err := read(changed, signature, r.key, build); !errors.Is(err, ErrSignature) {
			t.Errorf("byte %d of the manifest: %v", at, err)
		}
	}
	taken := 0
	for at := range signature {
		changed := bytes.Clone(signature)
		changed[at] ^= 1
		if _, err := read(text, changed, r.key, build); err == nil {
			if taken++; said(changed) != said(signature) {
				t.Errorf("byte %d of the signature (%q) was not noticed", at, changed)
			}
		} else if !errors.Is(err, ErrSignature) {
			t.Errorf("byte %d of the signature: %v", at, err)
		}
	}
	if firstLine := bytes.IndexByte(signature, '\n'); taken > firstLine+4 {
		t.Errorf("%d changes of the signature were not noticed, its first line has %d bytes", taken, firstLine)
	}
}

// What a killed unpacking left goes with a later one, and what another process writes stays.
func TestUnpackingThatWasKilled(t *testing.T) {
	r := newRelease(t)
	dir := filepath.Join(r.cache, "kube", "v1")
	left, writes := filepath.Join(dir, ".bundle-1"), filepath.Join(dir, ".bundle-2")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(left, nil, 0o600), os.WriteFile(writes, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * unfinishedFor)
	if err := errors.Join(os.Chtimes(left, old, old), r.fill(nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was left is there: %v", err)
	}
	if _, err := os.Stat(writes); err != nil {
		t.Errorf("what another process writes: %v", err)
	}
}

// stalls is a download that ends with its context.
type stalls struct{ ctx context.Context }

func (s stalls) Read([]byte) (int, error) { <-s.ctx.Done(); return 0, s.ctx.Err() }
func (stalls) Close() error               { return nil }

// A download that stands still in its middle is given up.
func TestDownloadThatStalls(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		begun := time.Now()
		from := &told{ReadCloser: stalls{ctx}, ctx: ctx, cancel: cancel, at: begun, progress: func(string) {}}
		if _, err := from.Read(make([]byte, 1)); !errors.Is(err, errStalled) || time.Since(begun) != answerWithin {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}
