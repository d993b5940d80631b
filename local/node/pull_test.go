package node

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"
)

// pushImage pushes an image of one layer to a registry of its own, and returns its name.
func pushImage(t testing.TB, headers []tar.Header, contents [][]byte, config v1.Config) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i, h := range headers {
		h.Size = int64(len(contents[i]))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(contents[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, config
	if image, err = mutate.ConfigFile(image, file); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/test/image:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		t.Fatal(err)
	}
	return ref.Name()
}

// A pod of a registry's image runs its entry point with its files, user, folder and variables,
// and its digest is on the status.
func TestImageOfARegistry(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, IsolationFull, func(o *Options) { o.ImageStore.Dir = filepath.Join(dir, "images") })
	program, err := os.ReadFile(filepath.Join(helpers(t), "echo"))
	if err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(dir, "outside")
	if err := os.WriteFile(outside, []byte("safe"), 0o600); err != nil {
		t.Fatal(err)
	}
	image := pushImage(t, []tar.Header{
		{Name: "app/echo", Typeflag: tar.TypeReg, Mode: 0o755},
		{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644},
		{Name: "work/", Typeflag: tar.TypeDir, Mode: 0o755, Uid: 1234, Gid: 1234},
		{Name: "etc/hosts", Typeflag: tar.TypeSymlink, Linkname: outside},
		{Name: "mnt", Typeflag: tar.TypeSymlink, Linkname: dir},
	}, [][]byte{program, []byte("app:x:1234:1234::/home/app:/bin/none\n"), nil, nil, nil}, v1.Config{
		Entrypoint: []string{"echo"}, User: "app", WorkingDir: "/work", Env: []string{"PATH=/app", "FROM_IMAGE=1"},
	})
	n.create(t, echoPod("a", func(p *corev1.Pod) {
		p.Spec.Containers[0].Image = image
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/mnt/deep"}}
	}))
	pod := n.await(t, "a", "ready", isReady)
	if id := pod.Status.ContainerStatuses[0].ImageID; !strings.Contains(id, "@sha256:") {
		t.Errorf("the status has no digest: %q", id)
	}
	if _, err := ask(t.Context(), pod.Status.PodIP); err != nil {
		t.Error(err)
	}
	rec, err := n.provider().find(n.ns, "a")
	if err != nil {
		t.Fatal(err)
	}
	rec.mu.Lock()
	proc := "/proc/" + strconv.Itoa(rec.containers[0].proc.PID())
	rec.mu.Unlock()
	status, err := os.ReadFile(proc + "/status")
	if err != nil || !strings.Contains(string(status), "\nUid:\t1234\t1234\t1234\t1234\n") {
		t.Errorf("its user: %s, %v", status, err)
	}
	if cwd, err := os.Readlink(proc + "/cwd"); err != nil || cwd != "/work" {
		t.Errorf("its folder: %q, %v", cwd, err)
	}
	environ, err := os.ReadFile(proc + "/environ")
	if err != nil || !strings.Contains(string(environ), "FROM_IMAGE=1") || !strings.Contains(string(environ), "HOME=/home/app") {
		t.Errorf("its variables: %q, %v", environ, err)
	}
	// The image's links were followed as from inside.
	if b, err := os.ReadFile(outside); err != nil || string(b) != "safe" {
		t.Errorf("a link led out: %q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "deep")); err == nil {
		t.Error("a mount's place was made outside")
	}
}

// Images whose links would have the node write to the machine, or leave /proc open, do not start.
func TestHostileRootDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, IsolationFull, func(o *Options) { o.ImageStore.Dir = filepath.Join(dir, "images") })
	for name, link := range map[string]string{"proc": "proc", "dev": "dev"} {
		image := pushImage(t, []tar.Header{{Name: link, Typeflag: tar.TypeSymlink, Linkname: filepath.Join(dir, name)}}, [][]byte{nil},
			v1.Config{Entrypoint: []string{"/none"}})
		n.create(t, echoPod(name, func(p *corev1.Pod) { p.Spec.Containers[0].Image = image }))
		n.await(t, name, "fails", func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses
			return len(s) > 0 && s[0].LastTerminationState.Terminated != nil && s[0].LastTerminationState.Terminated.Reason == "StartError"
		})
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s: a file was made outside", name)
		}
	}
}

// An image that is not there is said on the pod within seconds.
func TestImageThatIsNotThere(t *testing.T) {
	n := startNode(t, IsolationFull, func(o *Options) { o.ImageStore.Dir = filepath.Join(t.TempDir(), "images") })
	there := pushImage(t, nil, nil, v1.Config{})
	gone := strings.TrimSuffix(there, ":1") + ":2"
	n.create(t, echoPod("gone", func(p *corev1.Pod) { p.Spec.Containers[0].Image = gone }), echoPod("empty", func(p *corev1.Pod) { p.Spec.Containers[0].Image = there }))
	for name, want := range map[string]string{"gone": gone, "empty": "names no command"} {
		n.await(t, name, "says what is wrong", func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses
			return len(s) > 0 && s[0].State.Waiting != nil && strings.Contains(s[0].State.Waiting.Message, want)
		})
	}
}

// A list of users that is a FIFO keeps no pod waiting, names below local/ are not pulled, and
// Never pulls nothing.
func TestImagesThatAreRefused(t *testing.T) {
	n := startNode(t, IsolationFull, func(o *Options) { o.ImageStore.Dir = filepath.Join(t.TempDir(), "images") })
	fifo := pushImage(t, []tar.Header{{Name: "etc/passwd", Typeflag: tar.TypeFifo, Mode: 0o644}}, [][]byte{nil}, v1.Config{Entrypoint: []string{"/x"}, User: "app"})
	there := pushImage(t, nil, nil, v1.Config{Entrypoint: []string{"/x"}})
	for name, tc := range map[string]struct {
		image string
		pull  corev1.PullPolicy
		want  string
	}{
		"fifo":  {fifo, corev1.PullAlways, "its user"},
		"local": {"local/nothing", corev1.PullAlways, "image table"},
		"never": {there, corev1.PullNever, "may not be pulled"},
	} {
		n.create(t, echoPod(name, func(p *corev1.Pod) {
			p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = tc.image, tc.pull
		}))
		n.await(t, name, "says what is wrong", func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses
			return len(s) > 0 && s[0].State.Waiting != nil && strings.Contains(s[0].State.Waiting.Message, tc.want)
		})
	}
}
