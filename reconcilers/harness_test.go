package reconcilers_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/reconcilers"
	"github.com/sandlane/sandlane/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// addressCooldown is shorter than what is shipped: most tests are not about it.
const addressCooldown = 3 * time.Second

// world is one test's namespace: the controller under test, a node that the
// test plays, and gateways that acknowledge fences.
type world struct {
	t  testing.TB
	c  client.WithWatch
	ns string
	// gateways is the Fencer. It outlives a controller.
	gateways *gateways
	node     *node
	options  reconcilers.Options
	// faults wraps the controller's writes; see restart tests.
	faults *interceptor.Funcs
	// watchLag is how late the controller's watches are.
	watchLag time.Duration
	stop     func()
	log      logs
}

// logs keeps what the controller logs, to be shown if the test fails.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.text.WriteString(args + "\n")
	}, funcr.Options{LogTimestamp: true})
}

func (l *logs) show(t testing.TB) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.Failed() {
		t.Log(l.text.String())
	}
}

// newWorld also makes the test a parallel one: most of its time is waiting.
func newWorld(t *testing.T, configure ...func(*world)) *world {
	t.Parallel()
	return newWorldAlone(t, configure...)
}

// newWorldAlone is newWorld for a test that looks at what the whole API server does:
// it runs before the parallel ones.
func newWorldAlone(t testing.TB, configure ...func(*world)) *world {
	w := &world{t: t, c: kubetest.Client(t), ns: kubetest.Namespace(t), gateways: &gateways{}}
	w.options.Fencer, w.options.ClusterID, w.options.AddressCooldown = w.gateways, "local", addressCooldown
	w.node = newNode(w)
	for _, f := range configure {
		f(w)
	}
	w.start()
	t.Cleanup(func() { w.stop(); w.clear(); w.log.show(t) })
	return w
}

// clear removes what the test made by force: its controller, which would do so in
// order, has stopped.
func (w *world) clear() {
	ctx := context.Background() // the test's is over
	var pools v1alpha1.SandboxPoolList
	var pods corev1.PodList
	var sandboxes v1alpha1.SandboxList
	if err := errors.Join(w.c.List(ctx, &pools, client.InNamespace(w.ns)),
		w.c.List(ctx, &pods, client.InNamespace(w.ns)),
		w.c.List(ctx, &sandboxes, client.MatchingFields{"spec.namespace": w.ns})); err != nil {
		w.t.Errorf("listing what is left: %v", err)
	}
	var left []client.Object
	for i := range pools.Items {
		left = append(left, &pools.Items[i])
	}
	for i := range pods.Items {
		left = append(left, &pods.Items[i])
	}
	for i := range sandboxes.Items {
		left = append(left, &sandboxes.Items[i])
	}
	for _, o := range left {
		_ = w.c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		if err := w.c.Delete(ctx, o, client.GracePeriodSeconds(0)); err != nil && !apierrors.IsNotFound(err) {
			w.t.Errorf("deleting %s: %v", o.GetName(), err)
		}
	}
}

// start runs a controller that knows nothing but the API. Call stop before the
// next start.
func (w *world) start() {
	w.t.Helper()
	cfg := kubetest.ControllerConfig(w.t, w.ns)
	kubetest.Scope(cfg, w.ns)
	if w.watchLag > 0 {
		cfg.Wrap(func(base http.RoundTripper) http.RoundTripper { return lagging{base, w.watchLag} })
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:  kubetest.Scheme(),
		Logger:  w.log.logger(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{
			ByObject: reconcilers.CacheByObject(),
		},
		NewClient: func(config *rest.Config, options client.Options) (client.Client, error) {
			c, err := client.NewWithWatch(config, options)
			if err != nil || w.faults == nil {
				return c, err
			}
			return interceptor.NewClient(c, *w.faults), nil
		},
		GracefulShutdownTimeout: ptr.To(5 * time.Second),
	})
	if err != nil {
		w.t.Fatalf("making a manager: %v", err)
	}
	o := w.options
	o.Controller = controller.Options{SkipNameValidation: ptr.To(true)}
	if err := reconcilers.Setup(mgr, o); err != nil {
		w.t.Fatalf("setting up the reconcilers: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	var once sync.Once
	w.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				w.t.Errorf("the manager: %v", err)
			}
		})
	}
}

// pool makes a pool of one-container pods.
func (w *world) pool(name string, replicas, maxPods int32, change ...func(*v1alpha1.SandboxPool)) *v1alpha1.SandboxPool {
	w.t.Helper()
	p := &v1alpha1.SandboxPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec: v1alpha1.SandboxPoolSpec{Replicas: replicas, MaxPods: maxPods, Template: &v1alpha1.SandboxTemplateSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				NodeName:   "node",
				Containers: []corev1.Container{{Name: "main", Image: "local/echo"}},
			}},
		}},
	}
	for _, f := range change {
		f(p)
	}
	if err := w.c.Create(w.t.Context(), p); err != nil {
		w.t.Fatalf("creating pool %s: %v", name, err)
	}
	return p
}

// pods lists the pool's pods, with phase if it is not empty.
func (w *world) pods(pool string, phase v1alpha1.PodPhase) []corev1.Pod {
	w.t.Helper()
	labels := client.MatchingLabels{v1alpha1.LabelPool: pool}
	if phase != "" {
		labels[v1alpha1.LabelPhase] = string(phase)
	}
	var list corev1.PodList
	if err := w.c.List(w.t.Context(), &list, client.InNamespace(w.ns), labels); err != nil {
		w.t.Fatalf("listing pods: %v", err)
	}
	return list.Items
}

// await waits until the pool has exactly n pods of the phase that are not being
// deleted.
func (w *world) await(pool string, phase v1alpha1.PodPhase, n int) []corev1.Pod {
	w.t.Helper()
	var found []corev1.Pod
	kubetest.Eventually(w.t, fmt.Sprintf("%d %s pods", n, phase), func() error {
		found = nil
		for _, p := range w.pods(pool, phase) {
			if p.DeletionTimestamp == nil {
				found = append(found, p)
			}
		}
		if len(found) != n {
			return fmt.Errorf("%d", len(found))
		}
		return nil
	})
	return found
}

// newSandbox is a Sandbox as a gateway creates it, bound to the pod; nil binds none.
func (w *world) newSandbox(pool string, pod *corev1.Pod, change ...func(*v1alpha1.Sandbox)) *v1alpha1.Sandbox {
	w.t.Helper()
	s := &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{Name: kubetest.Name("s"), Finalizers: []string{v1alpha1.FinalizerSandbox}},
		Spec:       v1alpha1.SandboxSpec{Namespace: w.ns, Pool: pool},
	}
	if pod != nil {
		s.Spec.Binding = &v1alpha1.Binding{ClaimID: kubetest.Name("claim"), PodName: pod.Name, PodUID: string(pod.UID)}
	}
	for _, f := range change {
		f(s)
	}
	if err := w.c.Create(w.t.Context(), s); err != nil {
		w.t.Fatalf("creating a sandbox: %v", err)
	}
	return s
}

// claimPatch is the gateways' pod PATCH for the sandbox's binding.
func claimPatch(s *v1alpha1.Sandbox, phase v1alpha1.PodPhase) writes.Patch {
	now := time.Now().UTC().Format(time.RFC3339Nano)
	p := writes.Patch{}.Test("/metadata/uid", s.Spec.Binding.PodUID).
		Test(writes.Phase, v1alpha1.PodIdle).
		Test("/metadata/deletionTimestamp", nil).
		Set(writes.Phase, phase).
		Set(writes.Claim, s.Spec.Binding.ClaimID).
		Set(writes.Label(v1alpha1.LabelSandboxID), s.Name).
		Set(writes.Annotation(v1alpha1.AnnotationClaimedAt), now)
	if phase == v1alpha1.PodRunning {
		p = p.Set(writes.Annotation(v1alpha1.AnnotationStartedAt), now)
	}
	return p
}

// claim binds and claims an idle pod, as a gateway does.
func (w *world) claim(pool string, phase v1alpha1.PodPhase, change ...func(*v1alpha1.Sandbox)) (*v1alpha1.Sandbox, *corev1.Pod) {
	w.t.Helper()
	idle := w.pods(pool, v1alpha1.PodIdle)
	if len(idle) == 0 {
		w.t.Fatal("no idle pod to claim")
	}
	pod := &idle[0]
	s := w.newSandbox(pool, pod, change...)
	if err := w.c.Patch(w.t.Context(), pod, claimPatch(s, phase).Build()); err != nil {
		w.t.Fatalf("claiming pod %s: %v", pod.Name, err)
	}
	return s, pod
}

func (w *world) running(pool string, change ...func(*v1alpha1.Sandbox)) (*v1alpha1.Sandbox, *corev1.Pod) {
	w.t.Helper()
	s, pod := w.claim(pool, v1alpha1.PodRunning, change...)
	return w.awaitSandbox(s, v1alpha1.SandboxRunning), pod
}

// sandbox reads the Sandbox; nil if it is gone.
func (w *world) sandbox(name string) *v1alpha1.Sandbox {
	w.t.Helper()
	s := &v1alpha1.Sandbox{}
	if err := w.c.Get(w.t.Context(), client.ObjectKey{Name: name}, s); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		w.t.Fatalf("reading sandbox %s: %v", name, err)
	}
	return s
}

// awaitSandbox waits for a phase; an empty one means gone.
func (w *world) awaitSandbox(s *v1alpha1.Sandbox, phase v1alpha1.SandboxPhase) *v1alpha1.Sandbox {
	w.t.Helper()
	var now *v1alpha1.Sandbox
	kubetest.Eventually(w.t, fmt.Sprintf("sandbox %q", phase), func() error {
		now = w.sandbox(s.Name)
		switch {
		case now == nil && phase == "":
			return nil
		case now == nil:
			return errors.New("it is gone")
		case phase == "" || now.Status.Phase != phase:
			return fmt.Errorf("it is %q, end %v", now.Status.Phase, now.Spec.End)
		}
		return nil
	})
	return now
}

// pod reads a pod by name; nil if it is gone or another one.
func (w *world) pod(p *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	now := &corev1.Pod{}
	err := w.c.Get(w.t.Context(), client.ObjectKeyFromObject(p), now)
	if apierrors.IsNotFound(err) || (err == nil && now.UID != p.UID) {
		return nil
	}
	if err != nil {
		w.t.Fatalf("reading pod %s: %v", p.Name, err)
	}
	return now
}

func (w *world) awaitGone(p *corev1.Pod) {
	w.t.Helper()
	kubetest.Eventually(w.t, "pod "+p.Name+" gone", func() error {
		if now := w.pod(p); now != nil {
			return fmt.Errorf("phase %s, deleted %v, finalizers %v", v1alpha1.PhaseOf(now), now.DeletionTimestamp, now.Finalizers)
		}
		return nil
	})
}

// gateways acknowledge fences, unless told not to.
type gateways struct {
	mu     sync.Mutex
	away   bool
	fences map[netip.Addr][]uint64
}

func (g *gateways) Fence(_ context.Context, addr netip.Addr, rv uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.away {
		return errors.New("a gateway does not answer")
	}
	if g.fences == nil {
		g.fences = map[netip.Addr][]uint64{}
	}
	g.fences[addr] = append(g.fences[addr], rv)
	return nil
}

func (g *gateways) setAway(away bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.away = away
}

// of returns the resourceVersions that the address was fenced with.
func (g *gateways) of(address string) []uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]uint64(nil), g.fences[netip.MustParseAddr(address)]...)
}

var addresses atomic.Uint32

// newAddress returns one that no other test uses: ended Sandboxes of earlier
// tests are on record still.
func newAddress() string {
	n := addresses.Add(1)
	return netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}).String()
}
