package registry

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/stream"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const token = "a token"

func serve(t *testing.T, dir string) (host string) {
	t.Helper()
	r, err := Open(dir, token)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(r.Handler())
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func options(t *testing.T) []remote.Option {
	return []remote.Option{remote.WithContext(t.Context()), remote.WithAuth(&authn.Basic{Username: User, Password: token})}
}

func randomImage(t *testing.T) v1.Image {
	t.Helper()
	image, err := random.Image(4<<10, 3)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func reference(t *testing.T, text string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// What was pushed is there, by tag and digest, also for the next process; a tag moves.
func TestKeeps(t *testing.T) {
	dir := t.TempDir()
	image := randomImage(t)
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is there already
		if err := remote.Write(reference(t, serve(t, dir)+"/templates/ns/of:tag"), image, options(t)...); err != nil {
			t.Fatal(err)
		}
	}
	other := serve(t, dir)
	for _, ref := range []string{":tag", "@" + digest.String()} {
		got, err := remote.Image(reference(t, other+"/templates/ns/of"+ref), options(t)...)
		if err != nil {
			t.Fatalf("%s: %v", ref, err)
		}
		if err := validate.Image(got); err != nil {
			t.Errorf("%s: %v", ref, err)
		}
	}
	moved := randomImage(t)
	if err := remote.Write(reference(t, other+"/templates/ns/of:tag"), moved, options(t)...); err != nil {
		t.Fatal(err)
	}
	want, _ := moved.Digest()
	if is, err := remote.Head(reference(t, other+"/templates/ns/of:tag"), options(t)...); err != nil || is.Digest != want {
		t.Errorf("the tag is %v, %v", is, err)
	}
}

// A layer of unknown size is streamed, in parts.
func TestStreams(t *testing.T) {
	host := serve(t, t.TempDir())
	repository, err := name.NewRepository(host + "/a")
	if err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("0123456789"), 1<<16)
	l := stream.NewLayer(io.NopCloser(bytes.NewReader(content)))
	if err := remote.WriteLayer(repository, l, options(t)...); err != nil {
		t.Fatal(err)
	}
	digest, err := l.Digest()
	if err != nil {
		t.Fatal(err)
	}
	read, err := remote.Layer(repository.Digest(digest.String()), options(t)...)
	if err != nil {
		t.Fatal(err)
	}
	r, err := read.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// Without the token nothing is read or written, nor in another repository by digest.
func TestRefuses(t *testing.T) {
	host := serve(t, t.TempDir())
	image := randomImage(t)
	if err := remote.Write(reference(t, host+"/one:1"), image, options(t)...); err != nil {
		t.Fatal(err)
	}
	layers, _ := image.Layers()
	blob, _ := layers[0].Digest()
	digest, _ := image.Digest()
	do := func(method, path, password, body string) int {
		t.Helper()
		q, err := http.NewRequestWithContext(context.Background(), method, "http://"+host+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if password != "" {
			q.SetBasicAuth(User, password)
		}
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	manifest, _ := image.RawManifest()
	for _, c := range []struct {
		what, method, path, password, body string
		want                               int
	}{
		{"no token", "GET", "/v2/", "", "", 401},
		{"a wrong one", "GET", "/v2/one/manifests/1", "b", "", 401},
		{"its own blob", "HEAD", "/v2/one/blobs/" + blob.String(), token, "", 200},
		{"a blob of another repository", "GET", "/v2/two/blobs/" + blob.String(), token, "", 404},
		{"a manifest of another repository", "GET", "/v2/two/manifests/" + digest.String(), token, "", 404},
		{"a manifest that names blobs of another", "PUT", "/v2/two/manifests/1", token, string(manifest), 400},
		{"a manifest by another digest", "PUT", "/v2/one/manifests/sha256:" + strings.Repeat("0", 64), token, string(manifest), 400},
		{"no manifest", "PUT", "/v2/one/manifests/1", token, "{}", 400},
		{"a mount", "POST", "/v2/two/blobs/uploads/?mount=" + blob.String() + "&from=one", token, "", 202}, // an upload in its place
		{"a name that leads out", "GET", "/v2/../one/manifests/1", token, "", 404},
		{"an escaped one", "GET", "/v2/one/manifests/%2e%2e%2f%2e%2e%2fone", token, "", 404},
		{"an upload that was not begun", "PUT", "/v2/one/blobs/uploads/XXX?digest=" + blob.String(), token, "", 404},
		{"an upload by a path", "PUT", "/v2/one/blobs/uploads/..?digest=" + blob.String(), token, "", 404},
		{"a deletion", "DELETE", "/v2/one/manifests/1", token, "", 405},
	} {
		if got := do(c.method, c.path, c.password, c.body); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// Content of another digest is not kept, and what was not ended is gone with the next process.
func TestKeepsNothingHalf(t *testing.T) {
	dir := t.TempDir()
	host := serve(t, dir)
	begin := func() string {
		q, _ := http.NewRequest("POST", "http://"+host+"/v2/one/blobs/uploads/", nil)
		q.SetBasicAuth(User, token)
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.Header.Get("Location")
	}
	q, _ := http.NewRequest("PUT", "http://"+host+begin()+"?digest=sha256:"+strings.Repeat("0", 64), strings.NewReader("other"))
	q.SetBasicAuth(User, token)
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	if _ = answer.Body.Close(); answer.StatusCode != 400 {
		t.Errorf("a wrong digest: %d", answer.StatusCode)
	}
	begin()
	serve(t, dir)
	left, err := filepath.Glob(dir + "/uploads/*")
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if blobs, err := os.ReadDir(dir + "/blobs/sha256"); err != nil || len(blobs) > 0 {
		t.Errorf("kept %v, %v", blobs, err)
	}
	if _, err := Open(t.TempDir(), ""); err == nil {
		t.Error("a registry without a token")
	}
}

// What nobody has used for a while goes, with its tags and what no other manifest names; what is
// held or used stays whole.
func TestCollect(t *testing.T) {
	dir := t.TempDir()
	r, err := Open(dir, token)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(r.Handler())
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	images, digests := map[string]v1.Image{}, map[string]string{}
	for _, name := range []string{"held", "read", "unused"} {
		images[name] = randomImage(t)
		digest, err := images[name].Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests[name] = digest.String()
		for _, repository := range []string{"ns/one", "ns/two"} {
			if err := remote.Write(reference(t, host+"/"+repository+":"+name), images[name], options(t)...); err != nil {
				t.Fatal(err)
			}
		}
	}
	keep := func(digest string) bool { return digest == digests["held"] }
	// All that is older than since was not used.
	old := time.Now().Add(-48 * time.Hour)
	err = filepath.WalkDir(dir+"/repositories", func(at string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chtimes(at, old, old)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, repository := range []string{"ns/one", "ns/two"} {
		if _, err := remote.Head(reference(t, host+"/"+repository+":read"), options(t)...); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Collect(time.Now().Add(-time.Hour), keep); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"held": true, "read": true, "unused": false} {
		for _, ref := range []string{":" + name, "@" + digests[name]} {
			got, err := remote.Image(reference(t, host+"/ns/two"+ref), options(t)...)
			if err == nil {
				err = validate.Image(got)
			}
			if (err == nil) != want {
				t.Errorf("%s: %v, want it there: %v", ref, err, want)
			}
		}
	}
	if blobs, err := os.ReadDir(dir + "/blobs/sha256"); err != nil || len(blobs) != 2*5 { // manifest, config, 3 layers
		t.Errorf("%d blobs, %v", len(blobs), err)
	}
	if err := remote.Write(reference(t, host+"/ns/one:unused"), images["unused"], options(t)...); err != nil {
		t.Errorf("what went cannot come back: %v", err)
	}
}
