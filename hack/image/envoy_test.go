package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Envoy's image with the module is Envoy's in all else; another architecture's has none.
func TestEnvoyWithModule(t *testing.T) {
	registry := newRegistry(t)
	module := filepath.Join(t.TempDir(), "fastpath.so")
	if err := os.WriteFile(module, []byte("the module"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{provenOn, "arm64"} {
		pushBase(t, registry+"/envoy:"+arch, false, []entry{
			folder("usr", 0o755), folder("usr/local", 0o751), folder("usr/local/bin", 0o755), {path: "usr/local/bin/envoy", mode: 0o755, text: "envoy"},
		}, func(c *v1.ConfigFile) {
			c.Architecture = arch
			c.Config = v1.Config{Entrypoint: []string{"/usr/local/bin/envoy"}, User: "101"}
		})
		printed := makeImages(t, "-out", t.TempDir(), "-push", registry, "-images", envoyName, "-tag", arch, "-platforms", "linux/"+arch,
			"-envoy-base", registry+"/envoy:"+arch, "-module", module)
		image := pulled(t, registry+"/"+envoyName+":"+arch)
		if c := configOf(t, image).Config; strings.Join(c.Entrypoint, " ") != "/usr/local/bin/envoy" || c.User != "101" || c.Labels["org.opencontainers.image.base.name"] == "" {
			t.Errorf("%s: it runs %v as %s, labels %v", arch, c.Entrypoint, c.User, c.Labels)
		}
		root, _ := unpacked(t, image)
		got, err := os.ReadFile(filepath.Join(root, moduleFolder, "fastpath.so"))
		if has := err == nil; has != (arch == provenOn) || has && string(got) != "the module" {
			t.Errorf("%s: the module is there: %v, %q", arch, has, got)
		}
		if envoy, err := os.ReadFile(filepath.Join(root, "usr/local/bin/envoy")); err != nil || string(envoy) != "envoy" || strings.Contains(printed, "not proven") != (arch != provenOn) {
			t.Errorf("%s: Envoy is %q, %v; printed:\n%s", arch, envoy, err, printed)
		}
	}
}

// Envoy's image is asked for by naming it, and named where it is missing.
func TestEnvoyImageIsNamed(t *testing.T) {
	o, err := parse([]string{"-envoy-base", "envoy:1"})
	if err != nil || strings.Join(o.names, ",") != strings.Join(allNames, ",")+","+envoyName {
		t.Errorf("with a base: %v, %v", o.names, err)
	}
	if o, err = parse(nil); err != nil || len(o.names) != len(allNames) {
		t.Errorf("without: %v, %v", o.names, err)
	}
	b := &builder{}
	if _, err := b.envoyWithModule(t.Context(), v1.Platform{OS: "linux", Architecture: runtime.GOARCH}); err == nil || !strings.Contains(err.Error(), "-envoy-base") {
		t.Errorf("without a base: %v", err)
	}
}
