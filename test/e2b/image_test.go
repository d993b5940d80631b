package e2b

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// layer collects the files of an image's layer.
type layer struct {
	t   *testing.T
	w   *tar.Writer
	buf bytes.Buffer
}

func newLayer(t *testing.T) *layer {
	l := &layer{t: t}
	l.w = tar.NewWriter(&l.buf)
	return l
}

func (l *layer) add(h tar.Header, content []byte) {
	l.t.Helper()
	h.Name, h.Size = strings.TrimPrefix(h.Name, "/"), int64(len(content))
	if err := l.w.WriteHeader(&h); err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.w.Write(content); err != nil {
		l.t.Fatal(err)
	}
}

// program adds a program of this machine with the libraries that it loads, below /bin.
func (l *layer) program(name string) {
	l.t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		l.t.Fatal(err)
	}
	copied := map[string]string{"/bin/" + name: path}
	libraries, err := exec.Command("ldd", path).CombinedOutput()
	if err != nil {
		l.t.Fatalf("ldd %s: %v\n%s", path, err, libraries)
	}
	for word := range strings.FieldsSeq(string(libraries)) {
		if strings.HasPrefix(word, "/") {
			copied[word] = word
		}
	}
	for _, to := range slices.Sorted(maps.Keys(copied)) { // one layer each time
		content, err := os.ReadFile(copied[to])
		if err != nil {
			l.t.Fatal(err)
		}
		l.add(tar.Header{Name: to, Typeflag: tar.TypeReg, Mode: 0o755}, content)
	}
}

// push makes an image of the layer and pushes it to a registry of its own.
func (l *layer) push(config v1.Config) (reference string) {
	l.t.Helper()
	server := newRegistry()
	l.t.Cleanup(server.Close)
	return l.pushTo(server, config)
}

// newRegistry serves a registry in memory.
func newRegistry() *httptest.Server {
	return httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
}

// pushTo makes an image of the layer and pushes it to a registry, under a name of the test's own.
func (l *layer) pushTo(server *httptest.Server, config v1.Config) (reference string) {
	l.t.Helper()
	if err := l.w.Close(); err != nil {
		l.t.Fatal(err)
	}
	content, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l.buf.Bytes())), nil })
	if err != nil {
		l.t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, content)
	if err != nil {
		l.t.Fatal(err)
	}
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, Config: config, RootFS: rootFS(l.t, image)})
	if err != nil {
		l.t.Fatal(err)
	}
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/tried/" + strings.ToLower(l.t.Name()) + ":1")
	if err != nil {
		l.t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		l.t.Fatal(err)
	}
	return ref.Name()
}

func rootFS(t *testing.T, image v1.Image) v1.RootFS {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return file.RootFS
}

// echoServer is a static program that serves on port 8000.
func echoServer(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "echo")
	build := exec.Command("go", "build", "-o", path, "../echo")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Images that were not made for sandboxes run as sandboxes: one with a shell, a user, variables
// and a working directory of its own, and one with nothing but a static program.
func TestAnyImage(t *testing.T) {
	server := echoServer(t)
	withShell := newLayer(t)
	for _, program := range []string{"bash", "id", "env"} {
		withShell.program(program)
	}
	withShell.add(tar.Header{Name: "srv/echo", Typeflag: tar.TypeReg, Mode: 0o755}, server)
	withShell.add(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:0::/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n"))
	withShell.add(tar.Header{Name: "home/user/", Typeflag: tar.TypeDir, Mode: 0o755, Uid: 1000, Gid: 1000}, nil)
	withShell.add(tar.Header{Name: "work/", Typeflag: tar.TypeDir, Mode: 0o755, Uid: 1000, Gid: 1000}, nil)
	withShell.add(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	bare := newLayer(t)
	bare.add(tar.Header{Name: "srv/echo", Typeflag: tar.TypeReg, Mode: 0o755}, server)

	for name, image := range map[string]string{
		"shell": withShell.push(v1.Config{Entrypoint: []string{"/bin/none"}, Env: []string{"PATH=/bin:/usr/local/bin", "GREETING=hello"}, WorkingDir: "/work"}),
		"bare":  bare.push(v1.Config{Entrypoint: []string{"/srv/echo"}}),
	} {
		t.Run(name, func(t *testing.T) {
			m := newTeam(t, "images-"+name, func(p *v1alpha1.SandboxPool) {
				p.Name = name
				p.Spec.Template = &v1alpha1.SandboxTemplateSpec{
					Runtimes: []v1alpha1.Runtime{v1alpha1.RuntimeSandboxd},
					Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
						Name: "main", Image: image, Command: []string{"/srv/echo"},
						Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}},
					}}}},
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, python(ctx, t, "2.63.0"), filepath.Join("python", "image.py"), name)
			cmd.Env = m.env()
			judge(t, cmd, []feature{{name: "files"}, {name: "server"}, {name: "commands"}, {name: "pause"}}, map[string]bool{})
		})
	}
}

// A create from a template whose image does not exist is told so within ten seconds.
func TestCreateWithoutTheImage(t *testing.T) {
	t.Parallel()
	server := newRegistry()
	t.Cleanup(server.Close)
	m := newTeam(t, "absent", func(p *v1alpha1.SandboxPool) {
		p.Name, p.Spec.Replicas = "absent", 0
		p.Spec.Template = &v1alpha1.SandboxTemplateSpec{
			Runtimes: []v1alpha1.Runtime{v1alpha1.RuntimeSandboxd},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", Image: strings.TrimPrefix(server.URL, "http://") + "/no/image:1", Command: []string{"/srv/echo"},
			}}}},
		}
	})
	began := time.Now()
	a := m.ask(t, "POST", "/v2/sandboxes", `{"templateID":"absent","timeout":60}`)
	if took := time.Since(began); a.Status != 503 || !strings.Contains(string(a.Body), "cannot start: ErrImagePull") || took > 10*time.Second {
		t.Errorf("after %v: %v; want 503 with the reason within ten seconds", took, a)
	}
}
