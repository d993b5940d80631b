package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const repository = "../.."

// newRegistry starts a registry on the loopback and returns its address.
func newRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// make runs the program and returns what it printed.
func makeImages(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), append([]string{"-root", repository}, args...), &out); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out.String()
}

// pulled gets an image back from a registry and checks that it is whole.
func pulled(t *testing.T, ref string) v1.Image {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(image); err != nil {
		t.Fatalf("%s: %v", ref, err)
	}
	return image
}

func configOf(t *testing.T, image v1.Image) *v1.ConfigFile {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func digestOf(t *testing.T, image v1.Image) string {
	t.Helper()
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// unpacked writes an image's files below a folder, as a container's root.
// Without root all of them are one's own. It returns their headers by path.
func unpacked(t *testing.T, image v1.Image) (string, map[string]*tar.Header) {
	t.Helper()
	root, headers := t.TempDir(), map[string]*tar.Header{}
	files := mutate.Extract(image)
	defer func() { _ = files.Close() }()
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return root, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		at := strings.TrimSuffix(h.Name, "/")
		headers[at] = h
		path := filepath.Join(root, at)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			var raw []byte
			if raw, err = io.ReadAll(r); err == nil {
				if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
					err = os.WriteFile(path, raw, 0o600)
				}
			}
		}
		if err == nil && os.Geteuid() == 0 {
			err = os.Lchown(path, h.Uid, h.Gid)
		}
		if err == nil {
			err = os.Chmod(path, h.FileInfo().Mode()) // after chown, which takes bits away
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-images nosuch", `no image "nosuch"`},
		{"-platforms amd64", `"amd64"`},
		{"-platforms windows/amd64", `"windows/amd64"`},
		{"-platforms linux/arm64/v8", `"linux/arm64/v8"`},
		{"argument", `"argument"`},
		{"-nosuch", "not defined"},
	} {
		if _, err := parse(strings.Fields(c.args)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if _, err := parse(nil); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("a bad time: %v", err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "86400")
	o, err := parse([]string{"-version", "v1.2.3+dirty"})
	if err != nil || o.tag != "v1.2.3-dirty" || o.created.Format("2006-01-02") != "1970-01-02" || len(o.names) != len(allNames) || o.platforms[0].Architecture != runtime.GOARCH {
		t.Errorf("defaults: %+v, %v", o, err)
	}
	if err := run(t.Context(), []string{"-root", repository, "-out", t.TempDir(), "-images", "sandlane-base", "-tag", "not a tag"}, io.Discard); err == nil {
		t.Error("a tag with spaces was taken")
	}
}

// What `sandlane up` needs is for the machine that built it, and no container's
// business: with it the image would depend on whether `make build` ran before.
func TestProgramsWithoutHelpers(t *testing.T) {
	root := t.TempDir()
	bin := filepath.Join(root, "local", "helpers", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"README", "echo", "sandboxd"} {
		if err := os.WriteFile(filepath.Join(bin, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := &builder{options: options{root: root}, work: t.TempDir()}
	overlay, err := b.withoutHelpers()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(overlay)
	want := `{"Replace":{"` + bin + `/echo":"","` + bin + `/sandboxd":""}}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
}

// In a folder of OCI's layout an image for several platforms is one index, however often it
// is added, and no tarball is written.
func TestLayout(t *testing.T) {
	folder, out := filepath.Join(t.TempDir(), "oci"), t.TempDir()
	for range 2 {
		makeImages(t, "-out", out, "-layout", folder, "-images", "sandlane-test-echo,sandlane-test-idle", "-tag", "v1.2.3", "-platforms", "linux/amd64,linux/arm64")
	}
	if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
		t.Errorf("beside the layout: %v, %v", left, err)
	}
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, one := range manifest.Manifests {
		below, err := index.ImageIndex(one.Digest)
		if err != nil {
			t.Fatal(err)
		}
		platforms, err := below.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, one.Annotations[refName])
		for _, p := range platforms.Manifests {
			names = append(names, p.Platform.String())
		}
	}
	if all := strings.Join(names, " "); all != "sandlane-test-echo:v1.2.3 linux/amd64 linux/arm64 sandlane-test-idle:v1.2.3 linux/amd64 linux/arm64" {
		t.Errorf("it has %s", all)
	}
}
