package builds

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/builds/store"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

var (
	caller = routing.KeyOwner{Team: "a", Namespace: "a", KeyID: "k", NamespaceUID: "11111111-1111-1111-1111-111111111111"}
	other  = routing.KeyOwner{Team: "b", Namespace: "b", KeyID: "l", NamespaceUID: "22222222-2222-2222-2222-222222222222"}
	hash   = strings.Repeat("a", 64)
)

// builder stands in for the sandbox of a build, and its sandboxd.
type builder struct {
	mu    sync.Mutex // guards all below
	made  []restapi.NewSandbox
	ended []string
	ran   []string
	put   string
	// archived are the marks since which archives were asked for.
	archived []sandboxdclient.Mark
	// run, if set, answers a command; create, if set, a create.
	run    func(ctx context.Context, c sandboxdclient.Command, output func([]byte)) (int, error)
	create func(ctx context.Context) error
}

func (b *builder) Create(ctx context.Context, n restapi.NewSandbox) (restapi.Sandbox, error) {
	b.mu.Lock()
	b.made = append(b.made, n)
	create := b.create
	b.mu.Unlock()
	if create != nil {
		return restapi.Sandbox{}, create(ctx)
	}
	return restapi.Sandbox{ID: n.ID}, nil
}

func (b *builder) End(_ context.Context, _, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = append(b.ended, id)
	return nil
}

func (b *builder) Run(ctx context.Context, _ *v1alpha1.Sandbox, _ *corev1.Pod, c sandboxdclient.Command, output func([]byte)) (int, error) {
	b.mu.Lock()
	b.ran = append(b.ran, c.User+": "+strings.Join(append([]string{c.Program}, c.Args...), " "))
	run := b.run
	b.mu.Unlock()
	if run != nil {
		return run(ctx, c, output)
	}
	output([]byte("done\n"))
	return 0, nil
}

func (b *builder) Put(_ context.Context, _ *v1alpha1.Sandbox, _ *corev1.Pod, path, user string, content io.Reader) error {
	text, err := io.ReadAll(content)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put = user + " " + path + " " + string(text)
	return err
}

func (b *builder) ArchiveSince(_ context.Context, _ string, _ *corev1.Pod, since sandboxdclient.Mark) (io.ReadCloser, sandboxdclient.Mark, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.archived = append(b.archived, since)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, h := range []tar.Header{{Name: "new"}, {Name: ".", PAXRecords: map[string]string{"SANDLANE.end": "1"}}} {
		h.Typeflag, h.Format = tar.TypeReg, tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			return nil, 0, err
		}
	}
	return io.NopCloser(&archive), since + 1, w.Close()
}

// callable has every sandbox, which may be called.
type callable struct{}

func (callable) Callable(_ context.Context, namespace, id string) (*v1alpha1.Sandbox, *corev1.Pod, error) {
	sandbox := &v1alpha1.Sandbox{}
	sandbox.Name, sandbox.Spec.Namespace = id, namespace
	return sandbox, &corev1.Pod{}, nil
}

// world is a gateway's Builds, with stand-ins around it.
type world struct {
	t       *testing.T
	api     client.Client
	builder *builder
	builds  *Builds
	image   string            // a base
	names   map[string]string // the pool of each template's name
	log     bytes.Buffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, builder: &builder{}, image: host + "/base:1"}
	w.api = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.TemplateBuild{}).Build()
	s, err := store.New(store.Options{Registry: host + "/templates", Bases: []string{host + "/*"}, Platform: v1.Platform{OS: "linux", Architecture: "amd64"}})
	if err != nil {
		t.Fatal(err)
	}
	w.builds = New(Options{
		API: w.api, Store: s, Sandboxes: w.builder, Agent: w.builder, Gateway: "gateway", Log: slog.New(slog.NewTextHandler(&w.log, nil)),
		Pods:    callable{},
		HasPool: func(namespace, pool string) bool { return namespace == "a" && strings.HasPrefix(pool, "build-") },
		Resolve: func(_, name string) string { return w.names[name] },
		Sign:    func(message string) string { return fmt.Sprintf("%x", message) },
	})
	t.Cleanup(w.builds.Stop)
	w.pushBase(host)
	return w
}

func (w *world) pushBase(host string) {
	w.t.Helper()
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: "amd64", Config: v1.Config{Env: []string{"PATH=/bin"}}})
	if err != nil {
		w.t.Fatal(err)
	}
	ref, err := name.ParseReference(host + "/base:1")
	if err != nil {
		w.t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		w.t.Fatal(err)
	}
}

// request makes a build.
func (w *world) request() restapi.Build {
	w.t.Helper()
	build, err := w.builds.Request(w.t.Context(), caller, restapi.BuildRequest{Name: "x", Tags: []string{"default"}, CPUCount: 1, MemoryMB: 512})
	if err != nil {
		w.t.Fatal(err)
	}
	return build
}

// settled waits until a build is in one of these phases.
func (w *world) settled(id string, phases ...v1alpha1.BuildPhase) *v1alpha1.TemplateBuild {
	w.t.Helper()
	build := &v1alpha1.TemplateBuild{}
	kubetest.Eventually(w.t, fmt.Sprintf("the build to be %v", phases), func() error {
		if err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: "a", Name: id}, build); err != nil {
			return err
		}
		if !slices.Contains(phases, build.Status.Phase) {
			return fmt.Errorf("it is %s", build.Status.Phase)
		}
		return nil
	})
	return build
}

func run(command string) restapi.BuildStep {
	return restapi.BuildStep{Type: "RUN", Args: []string{command}}
}
