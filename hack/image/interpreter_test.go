package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// onePackage is a lock file of one small package, which has no others.
const onePackage = `aiohappyeyeballs==2.7.1 --hash=sha256:9243213661e29250eb41368e5daa826fc017156c3b8a11440826b2e3ed376472 --hash=sha256:065665c041c42a5938ed220bdcd7230f22527fbec085e1853d2402c8a3615d9d
`

// On an image with Python the code interpreter has its server and the locked packages, in one
// layer, and starts beside sandboxd with the image's newest Python.
func TestCodeInterpreter(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(lock, []byte(onePackage), 0o600); err != nil {
		t.Fatal(err)
	}
	registry := newRegistry(t)
	pushBase(t, registry+"/python:3", true, []entry{
		folder("usr", 0o755), folder("usr/bin", 0o755), {path: "usr/bin/python3.9", mode: 0o755, text: "#!"},
		folder("usr/local", 0o755), folder("usr/local/bin", 0o755), {path: "usr/local/bin/python3.13", mode: 0o755, text: "#!"},
		{path: "usr/local/bin/python3.13-config", mode: 0o755, text: "#!"},
	}, func(c *v1.ConfigFile) {
		c.Config.Env = []string{"PATH=/usr/local/bin", "LANG=C.UTF-8", "PYTHONPATH=/theirs"}
	})
	makeImages(t, "-out", t.TempDir(), "-push", registry, "-images", interpreterName, "-tag", "t", "-base", registry+"/python:3", "-packages", lock)
	image := pulled(t, registry+"/"+interpreterName+":t")
	c := configOf(t, image).Config
	if want := []string{"/usr/local/bin/sandboxd", "--", "python3.13", "-m", "sandlane_interpreter"}; !slices.Equal(c.Entrypoint, want) {
		t.Errorf("it runs %v", c.Entrypoint)
	}
	for _, want := range []string{"PYTHONPATH=/opt/code-interpreter/server:/opt/code-interpreter/packages", "SANDBOXD_ENV=LANG,PYTHONPATH"} {
		if !slices.Contains(c.Env, want) {
			t.Errorf("%s is not in %v", want, c.Env)
		}
	}
	_, serves := c.ExposedPorts[interpreterPort]
	if _, sandboxd := c.ExposedPorts[sandboxPort]; !serves || !sandboxd || c.Labels["org.opencontainers.image.title"] != interpreterName {
		t.Errorf("it exposes %v, and is called %v", c.ExposedPorts, c.Labels)
	}
	root, _ := unpacked(t, image)
	for _, file := range []string{"server/sandlane_interpreter/__main__.py", "packages/aiohappyeyeballs/__init__.py"} {
		if _, err := os.Stat(filepath.Join(root, interpreterDir, file)); err != nil {
			t.Error(err)
		}
	}
}

// A base without a Python that is new enough, and packages that are not those of the lock
// file, are refused, and nothing is left.
func TestCodeInterpreterRefused(t *testing.T) {
	registry := newRegistry(t)
	pushBase(t, registry+"/none:1", true, nil, func(*v1.ConfigFile) {})
	for base, program := range map[string]string{"old": "usr/bin/python3.10", "new": "usr/bin/python3.13"} {
		pushBase(t, registry+"/"+base+":1", true, []entry{folder("usr", 0o755), folder("usr/bin", 0o755), {path: program, mode: 0o755, text: "#!"}}, func(*v1.ConfigFile) {})
	}
	forged := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(forged, []byte("aiohappyeyeballs==2.7.1 --hash=sha256:"+strings.Repeat("0", 64)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for base, want := range map[string]string{
		"": "needs -base", "none": "has none in /usr/bin", "old": "3.11 or newer, and " + registry + "/old:1 has 3.10", "new": "HASH",
	} {
		args := []string{"-root", repository, "-out", t.TempDir(), "-images", interpreterName, "-packages", forged}
		if base != "" {
			args = append(args, "-base", registry+"/"+base+":1")
		}
		err := run(t.Context(), args, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("on %q: %v, want %q", base, err, want)
		}
		if left, _ := os.ReadDir(args[3]); len(left) > 0 {
			t.Errorf("on %q it left %v", base, left)
		}
	}
}
