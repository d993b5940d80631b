package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The images of the gateway and the controller, from a registry and from the
// tarball, and their program run as a container would.
func TestServices(t *testing.T) {
	registry, out := newRegistry(t), t.TempDir()
	printed := makeImages(t, "-out", out, "-push", registry+"/some/prefix", "-version", "v0.0.7", "-images", "sandlane-gateway,sandlane-controller")
	layers := map[string]bool{}
	for _, command := range []string{"gateway", "controller"} {
		image := "sandlane-" + command
		ref := registry + "/some/prefix/" + image + ":v0.0.7"
		got := pulled(t, ref)
		digest := digestOf(t, got)
		if !strings.Contains(printed, "pushed "+ref+"@"+digest+"\n") {
			t.Errorf("%s@%s was not printed:\n%s", ref, digest, printed)
		}
		config := configOf(t, got)
		c := config.Config
		if !slices.Equal(c.Entrypoint, []string{"/usr/local/bin/sandlane", command}) || c.Cmd != nil || c.User != "65532:65532" {
			t.Errorf("%s runs %v %v as %s", image, c.Entrypoint, c.Cmd, c.User)
		}
		if config.OS != "linux" || config.Architecture != runtime.GOARCH || !config.Created.IsZero() && config.Created.Unix() != 0 {
			t.Errorf("%s is for %s/%s, of %s", image, config.OS, config.Architecture, config.Created)
		}
		if c.Labels["org.opencontainers.image.version"] != "v0.0.7" || c.Labels["org.opencontainers.image.title"] != image {
			t.Errorf("%s: labels %v", image, c.Labels)
		}
		l, err := got.Layers()
		if err != nil || len(l) != 1 {
			t.Fatalf("%s: %d layers, %v", image, len(l), err)
		}
		d, _ := l[0].Digest()
		layers[d.String()] = true

		tag, err := name.NewTag(ref)
		if err != nil {
			t.Fatal(err)
		}
		loaded, err := tarball.ImageFromPath(filepath.Join(out, image+"-linux-"+runtime.GOARCH+".tar"), &tag)
		if err != nil {
			t.Fatal(err)
		}
		// A tarball has no manifest: what it stands for is in the configuration.
		a, _ := got.ConfigName()
		if b, err := loaded.ConfigName(); err != nil || a != b {
			t.Errorf("%s: the tarball holds %s, the registry %s: %v", image, b, a, err)
		}

		root, files := unpacked(t, loaded)
		if h := files["tmp"]; h == nil || h.FileInfo().Mode()&os.ModeSticky == 0 || h.Mode&0o777 != 0o777 {
			t.Errorf("/tmp is %+v", h)
		}
		pem, err := os.ReadFile(filepath.Join(root, trustFile))
		if pool := x509.NewCertPool(); err != nil || !pool.AppendCertsFromPEM(pem) || strings.Count(string(pem), "BEGIN CERTIFICATE") < 50 {
			t.Errorf("%s has no list of authorities: %v", image, err)
		}
		binary := filepath.Join(root, c.Entrypoint[0])
		help, err := exec.CommandContext(t.Context(), binary, command, "--help").CombinedOutput()
		if err != nil || !strings.Contains(string(help), "sandlane "+command+" [flags]") {
			t.Errorf("%s --help: %v\n%s", image, err, help)
		}
		version, err := exec.CommandContext(t.Context(), binary, "version").CombinedOutput()
		if err != nil || !strings.HasPrefix(string(version), "sandlane v0.0.7 linux/") {
			t.Errorf("%s version: %v\n%s", image, err, version)
		}
	}
	if len(layers) != 1 {
		t.Errorf("they have %d layers together, want one that they share", len(layers))
	}
}
