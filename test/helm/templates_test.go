package helm

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/sandlane/sandlane/test/node"
)

// pushLogin is what the registry of templates wants of who pushes.
const pushLogin = "gateway:of-the-test"

// foreign are images of programs of this machine, which were not made for Sandlane: names of
// programs, whether Python's library comes along, and the command of a server on the port 8000.
var foreign = []struct {
	name, server string
	programs     []string
	python       bool
}{
	{"tools", "/srv/echo", []string{"bash", "id", "cat", "mkdir", "rm", "stat"}, false},
	{"python", "python3 -m http.server 8000", []string{"bash", "id", "cat", "mkdir", "rm", "stat", "python3"}, true},
	{"busybox", "busybox httpd -f -p 8000 -h /srv", nil, false},
}

// TestTemplates builds templates by E2B's SDK on a real node: gateways push with the chart's push
// Secret to a registry from which the kubelet pulls. `hack/helm-test.sh templates` runs it.
func TestTemplates(t *testing.T) {
	python := pythonSDK(t)
	c := boot(t, "")
	c.templateRegistry(t)
	steps := []step{{"install", c.install}, {"team", c.team}, {"templates allowed", c.allowTemplates}}
	for _, image := range foreign {
		steps = append(steps, step{"template of " + image.name, func(t *testing.T) {
			said := c.python(t, python, "template.py", node.Registry+"/"+image.name+":1", image.name, image.server)
			fmt.Printf("      %s", strings.TrimSuffix(said, "passed"))
		}})
	}
	for i, step := range append(steps, step{"uninstall that ends sandboxes", c.endAndUninstall}) {
		began := time.Now()
		if !t.Run(step.name, step.run) && i < 3 {
			return
		}
		fmt.Printf("    %-32s %5.1f s\n", step.name, time.Since(began).Seconds())
	}
}

// templateRegistry serves the images, until the test ends.
func (c *cluster) templateRegistry(t *testing.T) {
	dir := c.tempDir(t)
	args := []string{"-address", node.Registry, "-login", pushLogin}
	for _, image := range foreign {
		args = append(args, writeForeign(t, dir, image.name, image.programs, image.python))
	}
	c.serveRegistry(t, args...)
}

// writeForeign writes an image with these programs, or busybox, and returns the tarball.
func writeForeign(t *testing.T, dir, repository string, programs []string, python bool) string {
	t.Helper()
	l := newForeign(t)
	for _, program := range programs {
		l.program(program)
	}
	if python {
		l.pythonLibrary()
	}
	if len(programs) == 0 {
		l.busybox(dir)
	}
	return l.write(filepath.Join(dir, repository+".tar"), repository)
}

// allowTemplates: an upgrade names the registry, with a Secret to push to it.
func (c *cluster) allowTemplates(t *testing.T) {
	login, err := json.Marshal(map[string]any{"auths": map[string]any{node.Registry: map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(pushLogin))}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(c.tempDir(t), "config.json")
	if err := os.WriteFile(file, login, 0o600); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "-n", system, "create", "secret", "generic", "push", "--type=kubernetes.io/dockerconfigjson", "--from-file=.dockerconfigjson="+file)
	c.roll(t, "templates.registry="+node.Registry+"/templates,templates.pushSecret=push,templates.bases={"+node.Registry+"/*}")
}

// foreignImage collects the files of an image.
type foreignImage struct {
	t    *testing.T
	w    *tar.Writer
	buf  bytes.Buffer
	seen map[string]bool
}

func newForeign(t *testing.T) *foreignImage {
	t.Helper()
	l := &foreignImage{t: t, seen: map[string]bool{}}
	l.w = tar.NewWriter(&l.buf)
	l.add(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	l.add(tar.Header{Name: "srv/removed", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("of the image"))
	l.add(tar.Header{Name: "srv/index.html", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("of the image"))
	l.file("/srv/echo", "../../local/helpers/bin/echo")
	return l
}

// add adds a file, the first of its name.
func (l *foreignImage) add(h tar.Header, content []byte) {
	l.t.Helper()
	h.Name, h.Size = strings.Trim(h.Name, "/"), int64(len(content))
	if l.seen[h.Name] {
		return
	}
	l.seen[h.Name] = true
	if dir := filepath.Dir(h.Name); dir != "." {
		l.add(tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	if err := l.w.WriteHeader(&h); err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.w.Write(content); err != nil {
		l.t.Fatal(err)
	}
}

func (l *foreignImage) link(path, target string) {
	l.t.Helper()
	l.add(tar.Header{Name: path, Typeflag: tar.TypeSymlink, Linkname: target}, nil)
}

// file adds a file of this machine.
func (l *foreignImage) file(path, from string) {
	l.t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		l.t.Fatal(err)
	}
	l.add(tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o755}, content)
}

// program adds a program of this machine, where it lies, with the libraries that it loads.
func (l *foreignImage) program(program string) {
	l.t.Helper()
	path, err := exec.LookPath(program)
	if err == nil && program == "python3" { // what is on PATH may be a script that finds it
		path = l.ofPython("sys.executable")
	}
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.libraries(path)
	l.file(path, path)
	l.link("/programs/"+program, path)
	l.link("/bin/sh", "/programs/bash")
	l.link("/bin/bash", "/programs/bash")
}

// libraries adds the libraries that programs of this machine load.
func (l *foreignImage) libraries(programs ...string) {
	l.t.Helper()
	out, err := exec.Command("ldd", programs...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("ldd %s: %v\n%s", programs, err, out)
	}
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "/") && !strings.HasSuffix(word, ":") { // which is a program's name
			l.file(word, word)
		}
	}
}

// ofPython returns what an expression is in this machine's python3.
func (l *foreignImage) ofPython(expression string) string {
	l.t.Helper()
	out, err := exec.Command("python3", "-c", "import sys, sysconfig; print("+expression+")").Output()
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// pythonLibrary adds the standard library of this machine's python3, without tests and what links
// with it.
func (l *foreignImage) pythonLibrary() {
	l.t.Helper()
	dir, modules := l.ofPython("sysconfig.get_paths()['stdlib']"), []string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch base := filepath.Base(path); {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{"test", "__pycache__", "site-packages", "dist-packages"}, base) || strings.HasPrefix(base, "config-")):
			return fs.SkipDir
		case d.Type().IsRegular():
			l.file(path, path)
			if strings.HasSuffix(path, ".so") {
				modules = append(modules, path)
			}
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.libraries(modules...)
}

// busybox adds the static busybox of Debian, as all programs. E2B's SDKs name /bin/bash, which it
// does not have.
func (l *foreignImage) busybox(dir string) {
	l.t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		fetch := exec.Command("sh", "-c", "apt-get download -q busybox-static && dpkg-deb -x busybox-static*.deb .")
		fetch.Dir = dir
		if out, err := fetch.CombinedOutput(); err != nil {
			l.t.Fatalf("there is no busybox, and apt-get has none: install busybox-static: %v\n%s", err, out)
		}
		path = filepath.Join(dir, "bin/busybox")
	}
	l.file("/bin/busybox", path)
	l.add(tar.Header{Name: "bin/bash", Typeflag: tar.TypeReg, Mode: 0o755}, []byte("#!/bin/busybox sh\nexec /bin/busybox sh \"$@\"\n"))
	for _, program := range []string{"sh", "id", "cat", "mkdir", "rm", "stat"} {
		l.link("/bin/"+program, "busybox")
	}
}

// write writes the image as a tarball.
func (l *foreignImage) write(file, repository string) string {
	l.t.Helper()
	if err := l.w.Close(); err != nil {
		l.t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l.buf.Bytes())), nil })
	if err != nil {
		l.t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		l.t.Fatal(err)
	}
	made, err := image.ConfigFile()
	if err != nil {
		l.t.Fatal(err)
	}
	config := made.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Env: []string{"PATH=/programs:/bin:/usr/bin", "OF_IMAGE=hello"}}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		l.t.Fatal(err)
	}
	tag, err := name.NewTag(repository + ":1")
	if err != nil {
		l.t.Fatal(err)
	}
	if err := tarball.WriteToFile(file, tag, image); err != nil {
		l.t.Fatal(err)
	}
	return file
}
