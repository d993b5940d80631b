package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	helm "helm.sh/helm/v4/pkg/registry"
)

const charts = "../../charts"

// made is a release's folder with this test's program and an image, charts and SBOM.
func made(t *testing.T, charts string) string {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sandlane-linux-amd64"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err = w.Write(tarOf(t, "interpreter/x.wheels/typing_extensions-4.16.0-py3-none-any.whl", "a wheel"))
	if err := errors.Join(err, w.Close(), os.WriteFile(filepath.Join(dir, "sandlane-bundle-v1.2.3-linux-amd64.tar.gz"), zipped.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer(tarOf(t, "usr/bin/tool", "\x7fELF of no Go"), types.OCIUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	at, err := layout.Write(filepath.Join(dir, layoutFolder), mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		t.Fatal(err)
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}})
	if err := at.AppendIndex(index, layout.WithAnnotations(map[string]string{specs.AnnotationRefName: "sandlane-base:v1.2.3"})); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"-dir", dir, "-charts", charts, "-version", "v1.2.3", "-created", "1000000000"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	return dir
}

// tarOf is an archive of one file.
func tarOf(t *testing.T, name, content string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	headerErr := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(content)), Mode: 0o755})
	_, err := io.WriteString(w, content)
	if err := errors.Join(headerErr, err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func filesOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Two runs of different checkouts of the same sources give the same files.
func TestSameBytes(t *testing.T) {
	other := t.TempDir()
	if err := os.CopyFS(other, os.DirFS(charts)); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	for _, name := range filesOf(t, other) {
		if err := os.Chtimes(filepath.Join(other, name), later, later); err != nil {
			t.Fatal(err)
		}
	}
	a, b := made(t, charts), made(t, other)
	names := filesOf(t, a)
	if more := filesOf(t, b); !slices.Equal(names, more) {
		t.Fatalf("the files differ: %q, %q", names, more)
	}
	for _, name := range names {
		one, errA := os.ReadFile(filepath.Join(a, name))
		two, errB := os.ReadFile(filepath.Join(b, name))
		if err := errors.Join(errA, errB); err != nil || !bytes.Equal(one, two) {
			t.Errorf("%s differs (%v)", name, err)
		}
	}
}

// Images and charts come to a registry with one tag, and Helm takes the charts from there; of
// a layout in which a byte was changed, the registry refuses what has it.
func TestPush(t *testing.T) {
	dir := made(t, charts)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://")
	var printed bytes.Buffer
	if err := run(t.Context(), []string{"-dir", dir, "-push", address + "/a/b"}, &printed); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/a/b/sandlane-base:v1.2.3@", "/a/b/charts/sandlane:1.2.3@", "/a/b/charts/sandlane-tenant:1.2.3@"} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("%q is not said to be pushed:\n%s", want, &printed)
		}
	}
	client, err := helm.NewClient(helm.ClientOptPlainHTTP(), helm.ClientOptWriter(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sandlane", "sandlane-tenant"} {
		got, err := client.Pull(address+"/a/b/charts/"+name+":1.2.3", helm.PullOptWithChart(true))
		if err != nil {
			t.Fatalf("Helm pulls %s: %v", name, err)
		}
		file, err := os.ReadFile(filepath.Join(dir, name+"-1.2.3.tgz"))
		if err != nil || !bytes.Equal(got.Chart.Data, file) {
			t.Errorf("%s of the registry is not that of the folder (%v)", name, err)
		}
		c, err := loader.LoadArchive(bytes.NewReader(got.Chart.Data))
		if err != nil {
			t.Fatal(err)
		}
		if m := c.Metadata; m.Name != name || m.Version != "1.2.3" || m.AppVersion != "v1.2.3" {
			t.Errorf("%s has versions %q and %q", m.Name, m.Version, m.AppVersion)
		}
	}
	for _, name := range filesOf(t, filepath.Join(dir, layoutFolder, "blobs")) {
		path := filepath.Join(dir, layoutFolder, "blobs", name)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := bytes.Clone(content)
		changed[len(changed)/2] ^= 1
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		fresh := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
		if err := run(t.Context(), []string{"-dir", dir, "-push", strings.TrimPrefix(fresh.URL, "http://")}, io.Discard); err == nil {
			t.Errorf("%s was pushed with a byte changed", name)
		}
		fresh.Close()
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The SBOM is valid SPDX, and has the programs with their modules.
func TestSBOM(t *testing.T) {
	dir := made(t, charts)
	text, err := os.ReadFile(filepath.Join(dir, "sandlane-v1.2.3.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	document, err := spdxjson.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(document); err != nil {
		t.Error(err)
	}
	var raw struct {
		Packages []struct {
			Name, VersionInfo string
			ExternalRefs      []struct{ ReferenceLocator string }
		}
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, p := range raw.Packages {
		found[p.Name] = p.VersionInfo
		for _, ref := range p.ExternalRefs {
			found[ref.ReferenceLocator] = p.VersionInfo
		}
	}
	for name, version := range map[string]string{
		"sandlane-linux-amd64": "v1.2.3", "sandlane-base:v1.2.3-linux-arm64/usr/bin/tool": "v1.2.3",
		"pkg:pypi/typing-extensions@4.16.0": "4.16.0",
		"helm.sh/helm/v4":                   found["helm.sh/helm/v4"], "pkg:golang/helm.sh/helm/v4@" + found["helm.sh/helm/v4"]: found["helm.sh/helm/v4"],
	} {
		if found[name] == "" || found[name] != version {
			t.Errorf("%s has version %q, want %q", name, found[name], version)
		}
	}
}

func TestRefused(t *testing.T) {
	for args, want := range map[string]string{
		"":                                      "-dir must name",
		"-dir x y":                              "-dir must name",
		"-dir x -version 1.2.3":                 "is not of the form",
		"-dir x -version v1.2.3+meta":           "is not of the form",
		"-dir x -version v1.2.3 -charts nosuch": "there are no charts",
		"-dir x -push localhost":                "check the release's layout",
	} {
		if err := run(t.Context(), strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
