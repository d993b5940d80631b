package store

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sandlane/sandlane/egress/upstream"
	"github.com/sandlane/sandlane/gateway/builds/layer"
)

const (
	ns      = "11111111-1111-1111-1111-111111111111"
	other   = "22222222-2222-2222-2222-222222222222"
	files   = "aaaa"
	ofBuild = "template"
)

// serve serves a registry in memory, and returns its host.
func serve(t *testing.T) (host string) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func newStore(t *testing.T, bases ...string) *Store {
	t.Helper()
	s, err := New(Options{Registry: serve(t) + "/templates", Bases: bases, Platform: v1.Platform{OS: "linux", Architecture: "amd64"}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tarOf(t *testing.T, items map[string]string, records map[string]map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(items)) {
		h := &tar.Header{Name: strings.TrimPrefix(name, "="), Typeflag: tar.TypeReg, Size: int64(len(items[name])), Mode: 0o644, PAXRecords: records[name], Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(items[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Uploads are found by namespace, template and hash alone, and come back as they were.
func TestFiles(t *testing.T) {
	s := newStore(t)
	content := bytes.Repeat([]byte("some bytes"), 1000)
	if has, err := s.HasFiles(t.Context(), ns, ofBuild, files); has != "" || err != nil {
		t.Fatalf("before: %v, %v", has, err)
	}
	if err := s.PutFiles(t.Context(), ns, ofBuild, files, bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ns, template, hash string
		want               bool
	}{{ns, ofBuild, files, true}, {other, ofBuild, files, false}, {ns, "another", files, false}, {ns, ofBuild, "bbbb", false}} {
		has, err := s.HasFiles(t.Context(), c.ns, c.template, c.hash)
		if has != "" != c.want || err != nil {
			t.Errorf("%+v: %v, %v", c, has, err)
		}
		if !c.want {
			continue
		}
		r, err := s.Files(t.Context(), has)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes came back, %v", len(got), err)
		}
	}
	if _, err := s.HasFiles(t.Context(), "", ofBuild, files); err == nil {
		t.Error("a namespace without a UID has a repository")
	}
}

type cutReader struct{ n int }

func (r *cutReader) Read(p []byte) (int, error) {
	if r.n -= len(p); r.n < 0 {
		return 0, io.ErrUnexpectedEOF
	}
	return len(p), nil
}

// An upload that is cut off leaves nothing that can be found.
func TestFilesCutOff(t *testing.T) {
	s := newStore(t)
	if err := s.PutFiles(t.Context(), ns, ofBuild, files, &cutReader{100_000}); err == nil {
		t.Fatal("it was kept")
	}
	if has, err := s.HasFiles(t.Context(), ns, ofBuild, files); has != "" || err != nil {
		t.Errorf("%v, %v", has, err)
	}
}

func image(t *testing.T, platform string, config v1.Config, items map[string]string) v1.Image {
	t.Helper()
	content := tarOf(t, items, nil)
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
	if err != nil {
		t.Fatal(err)
	}
	made, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		t.Fatal(err)
	}
	file, err := made.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.Config = config
	file.OS, file.Architecture, _ = strings.Cut(platform, "/")
	if made, err = mutate.ConfigFile(made, file); err != nil {
		t.Fatal(err)
	}
	return made
}

func push(t *testing.T, at string, i v1.Image) {
	t.Helper()
	ref, err := name.ParseReference(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, i); err != nil {
		t.Fatal(err)
	}
}

// anything admits each layer.
func anything([]Layer) error { return nil }

// A base and the files that a build has changed become an image in the namespace's repository:
// the base's layers, one more, and the changed configuration.
func TestAppend(t *testing.T) {
	bases := serve(t)
	s := newStore(t, bases+"/*")
	push(t, bases+"/debian:12", image(t, "linux/amd64", v1.Config{Env: []string{"PATH=/bin"}, User: "node"}, map[string]string{"etc/kept": "1", "etc/gone": "2"}))
	base, err := s.CopyBase(t.Context(), ns, bases+"/debian:12", "", "", anything)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(base.Reference, s.prefix+ns+"@sha256:") || base.Config.User != "node" {
		t.Errorf("base %s, %+v", base.Reference, base.Config)
	}
	archive := tarOf(t, map[string]string{"etc/new": "3", "=etc": "kept\x00new\x00", "~": ""}, map[string]map[string]string{
		"=etc": {"SANDLANE.names": "1"}, "~": {"SANDLANE.end": "1"},
	})
	made, err := s.Append(t.Context(), ns, base, bytes.NewReader(archive), 1<<30, anything)
	if err != nil {
		t.Fatal(err)
	}
	if len(made.Layers) != 2 || made.Config.User != "node" {
		t.Errorf("%d layers, %+v", len(made.Layers), made.Config)
	}
	built, err := s.Configure(t.Context(), ns, made, func(c *v1.Config) { c.User = "" })
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewDigest(built)
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := got.Layers()
	if err != nil || len(layers) != 2 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	read, err := layers[1].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(read); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		names = append(names, h.Name)
	}
	config, err := got.ConfigFile()
	if want := []string{"etc/new", "etc/.wh.gone"}; err != nil || !slices.Equal(names, want) || config.Config.User != "" || len(config.Config.Env) != 1 {
		t.Errorf("%q, %+v, %v", names, config.Config, err)
	}
	// Half of an archive is no image.
	var failure *Failure
	if built, err := s.Append(t.Context(), ns, base, bytes.NewReader(archive[:600]), 1<<30, anything); !errors.Is(err, layer.ErrCut) || errors.As(err, &failure) {
		t.Errorf("%+v was made of half an archive, or the registry is blamed: %v", built, err)
	}
}

// What steps made is found by its key, in its namespace alone, and the last that was kept for a key
// is.
func TestSteps(t *testing.T) {
	bases := serve(t)
	s := newStore(t, bases+"/*")
	for _, tag := range []string{"1", "2"} {
		push(t, bases+"/base:"+tag, image(t, "linux/amd64", v1.Config{Env: []string{"TAG=" + tag}}, nil))
		made, err := s.CopyBase(t.Context(), ns, bases+"/base:"+tag, "", "", anything)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.KeepStep(t.Context(), ns, "key", made); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ ns, key, want string }{{ns, "key", made.Reference}, {other, "key", ""}, {ns, "another", ""}} {
			if got, err := s.Step(t.Context(), c.ns, c.key); err != nil || got != c.want {
				t.Errorf("%+v: %q, %v", c, got, err)
			}
		}
	}
}

func TestBasesRefused(t *testing.T) {
	bases := serve(t)
	s := newStore(t, bases+"/allowed/*", "docker.io/library/*", "one.example/only")
	push(t, bases+"/allowed/arm:1", image(t, "linux/arm64", v1.Config{}, nil))
	for text, want := range map[string]bool{
		"debian": true, "docker.io/library/debian:12": true, "library/debian@sha256:" + strings.Repeat("0", 64): true, "other/debian": false,
		"one.example/only:1": true, "one.example/only/more": false, "one.example.evil.example/only": false, bases + "/allowed/x": true, bases + "/x": false,
		bases + "/allowed/../x": false, bases + "/allowed/./x": false, bases + "/allowed//x": false, "library/../other/debian": false,
		s.prefix + other + ":1": false, "": false, "a b": false, "docker.io.evil.example/library/debian": false,
	} {
		if err := s.Allowed(text); (err == nil) != want || err != nil && !errors.Is(err, ErrBase) {
			t.Errorf("%s: %v, want allowed %v", text, err, want)
		}
	}
	// Not even where all images may be bases is one of another namespace.
	all := newStore(t, "*")
	if err := all.Allowed(all.prefix + other + ":1"); !errors.Is(err, ErrBase) {
		t.Errorf("an image of another namespace: %v", err)
	}
	if _, err := s.CopyBase(t.Context(), ns, bases+"/allowed/arm:1", "", "", anything); !errors.Is(err, ErrBase) || !strings.Contains(err.Error(), "linux/arm64") {
		t.Errorf("another platform: %v", err)
	}
	push(t, bases+"/allowed/amd:1", image(t, "linux/amd64", v1.Config{}, nil))
	theirs, err := s.CopyBase(t.Context(), other, bases+"/allowed/amd:1", "", "", anything)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Base(t.Context(), other, theirs.Reference); err != nil {
		t.Errorf("an image of the namespace itself: %v", err)
	}
	if _, err := s.Base(t.Context(), ns, theirs.Reference); !errors.Is(err, ErrBase) {
		t.Errorf("an image of another namespace, by digest: %v", err)
	}
	if _, err := s.CopyBase(t.Context(), ns, bases+"/allowed/missing:1", "", "", anything); err == nil {
		t.Error("an image that is not there was copied")
	}
}

// raw is a manifest that no library would write.
type raw struct {
	v1.Image
	text string
}

func (r raw) RawManifest() ([]byte, error) { return []byte(r.text), nil }

// A base lies in its registry with all its layers, of which each says its size: nodes would read
// others from wherever its manifest says, and a gateway would never end reading.
func TestBasesWithWrongLayers(t *testing.T) {
	bases := serve(t)
	s := newStore(t, bases+"/*")
	good := image(t, "linux/amd64", v1.Config{}, map[string]string{"a": "1"})
	push(t, bases+"/base:good", good)
	text, err := good.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := good.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	layer, config := fmt.Sprintf(`"size":%d`, manifest.Layers[0].Size), fmt.Sprintf(`"size":%d`, manifest.Config.Size)
	for what, change := range map[string][2]string{
		"an address of a layer":      {layer, layer + `,"urls":["http://169.254.169.254/latest"]`},
		"an address of the config":   {config, config + `,"urls":["http://169.254.169.254/latest"]`},
		"a foreign layer":            {string(manifest.Layers[0].MediaType), string(types.DockerForeignLayer)},
		"a layer of any size":        {layer, `"size":-1`},
		"a configuration of any":     {config, `"size":-1`},
		"a layer that is too large":  {layer, fmt.Sprintf(`"size":%d`, int64(maxBase)+1)},
		"a config that is too large": {config, fmt.Sprintf(`"size":%d`, maxConfig+1)},
	} {
		ref, err := name.ParseReference(bases + "/base:bad")
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(text), change[0], change[1], 1)
		if changed == string(text) {
			t.Fatalf("%s: nothing to change", what)
		}
		if err := remote.Put(ref, raw{good, changed}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if _, err := s.CopyBase(t.Context(), ns, bases+"/base:bad", "", "", anything); !errors.Is(err, ErrBase) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.CopyBase(t.Context(), ns, bases+"/base:good", "", "", anything); err != nil {
		t.Error(err)
	}
}

// No base is read from a closed address: not by its name, not by a redirect, and not by the
// realm of a token. A registry that a pattern names with its port may lie there.
func TestClosedAddresses(t *testing.T) {
	asked := make(chan string, 16)
	inner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
	t.Cleanup(inner.Close)
	redirects := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inner.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(redirects.Close)
	realm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+inner.URL+`/token",service="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(realm.Close)
	host := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }
	s := newStore(t, "*", host(redirects)+"/*", host(realm)+"/*")
	for what, image := range map[string]string{
		"its address": host(inner) + "/x:1", "a redirect": host(redirects) + "/x:1", "a realm": host(realm) + "/x:1",
	} {
		_, err := s.CopyBase(context.Background(), ns, image, "", "", anything)
		if what == "a realm" && err != nil {
			continue // go-containerregistry may refuse it first
		}
		if !errors.Is(err, upstream.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	select {
	case path := <-asked:
		t.Errorf("the closed address was asked for %s", path)
	default:
	}
}

// A manifest is read into memory, so it has a bound.
func TestLargeManifestsAreRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			_, _ = w.Write([]byte(`{"schemaVersion":2,"layers":[]}` + strings.Repeat(" ", maxManifest)))
		}
	}))
	t.Cleanup(server.Close)
	at := strings.TrimPrefix(server.URL, "http://")
	if _, err := newStore(t, at+"/*").CopyBase(t.Context(), ns, at+"/x:1", "", "", anything); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("%v", err)
	}
}
