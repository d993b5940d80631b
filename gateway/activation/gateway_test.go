package activation

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// world is a namespace with a pool on a real API server.
type world struct {
	t    *testing.T
	c    client.WithWatch
	ns   string
	feed *feed
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, c: kubetest.Client(t), ns: kubetest.Namespace(t)}
	w.feed = w.startFeed()
	return w
}

// nextAddress numbers the addresses of this package's pods.
var nextAddress atomic.Uint32

// idle makes n pods that may be claimed.
func (w *world) idle(n int) {
	w.t.Helper()
	for range n {
		pod := idlePod(w.ns)
		if err := w.c.Create(w.t.Context(), pod); err != nil {
			w.t.Fatal(err)
		}
		pod.Status.PodIP = pod.Annotations[v1alpha1.AnnotationAddress]
		pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
		if err := w.c.Status().Update(w.t.Context(), pod); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) pods() []corev1.Pod {
	w.t.Helper()
	list := &corev1.PodList{}
	if err := w.c.List(w.t.Context(), list, client.InNamespace(w.ns)); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// make creates a sandbox as change leaves it.
func (w *world) make(id string, change func(*v1alpha1.SandboxSpec)) *v1alpha1.Sandbox {
	w.t.Helper()
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: id}}
	s.Spec.Namespace, s.Spec.Pool = w.ns, "pool"
	change(&s.Spec)
	if err := w.c.Create(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) sandbox(id string) *v1alpha1.Sandbox {
	w.t.Helper()
	s := &v1alpha1.Sandbox{}
	if err := w.c.Get(w.t.Context(), client.ObjectKey{Name: id}, s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// backed checks that exactly one pod carries a claim of the sandbox, and is the
// one that it names, and returns it.
func (w *world) backed(id string) *corev1.Pod {
	w.t.Helper()
	s := w.sandbox(id)
	var found *corev1.Pod
	for _, pod := range w.pods() {
		if pod.Labels[v1alpha1.LabelSandboxID] != id || v1alpha1.PhaseOf(&pod) == v1alpha1.PodStopping {
			continue
		}
		if found != nil {
			w.t.Errorf("sandbox %s is on %s and %s", id, found.Name, pod.Name)
		}
		found = &pod
	}
	if found == nil || !v1alpha1.Backs(found, s) {
		w.t.Fatalf("sandbox %s, bound to %+v, is not backed: %+v", id, s.Spec.Binding, found)
	}
	return found
}

// gateway is one activator with its schedulers and cache, fed by the world's.
type gateway struct {
	*Activator
	set   *schedule.Set
	cache *routecache.Cache
}

// gateway starts one; c may be a client with faults.
func (w *world) gateway(c client.Client, opts ...schedule.Option) *gateway {
	w.t.Helper()
	g := &gateway{set: schedule.NewSet(c, opts...), cache: routecache.New(0)}
	g.Activator = New(Options{
		Client: c, Schedulers: g.set.Get, Cache: g.cache,
		ClaimUse: func(string, string) *routecache.ClaimUse { return new(routecache.ClaimUse) },
	})
	g.set.PoolChanged(w.ns, "pool", true)
	w.catchUp()
	follow(w, w.feed.pods, func(what watch.EventType, pod *corev1.Pod) {
		if what == watch.Deleted {
			g.set.Forget(pod.Namespace, "pool", pod.UID)
		} else {
			g.set.Offer(pod)
		}
		if id := pod.Labels[v1alpha1.LabelSandboxID]; id != "" {
			g.NoteChange(id)
		}
	})
	follow(w, w.feed.sandboxes, func(_ watch.EventType, s *v1alpha1.Sandbox) { g.NoteChange(s.Name) })
	w.t.Cleanup(func() {
		var wg sync.WaitGroup
		wg.Go(g.set.Shutdown)
		g.Shutdown()
		wg.Wait()
	})
	return g
}

// request asks for a new sandbox, or for one that exists, and may claim.
func (w *world) request(id string, isNew bool, patience time.Duration) routing.Request {
	return routing.Request{ID: id, Namespace: w.ns, Pool: "pool", New: isNew, MayClaim: true, Deadline: time.Now().Add(patience)}
}

// fails checks that activating ends with the error.
func (g *gateway) fails(t *testing.T, r routing.Request, want error) error {
	t.Helper()
	err := g.Activate(t.Context(), r)
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		t.Fatalf("activating %s: %v, want %v", r.ID, err, want)
	}
	return err
}

// activates checks that activating succeeds.
func (g *gateway) activates(t *testing.T, r routing.Request) { t.Helper(); g.fails(t, r, nil) }

// parks waits until one request is parked.
func (g *gateway) parks(t *testing.T) {
	t.Helper()
	kubetest.Eventually(t, "a request to park", func() error {
		if n := testutil.ToFloat64(g.o.Metrics.parked); n != 1 {
			return fmt.Errorf("%v are parked", n)
		}
		return nil
	})
}

// queues waits until an activation of the sandbox waits for a pod.
func (g *gateway) queues(t *testing.T, id string) {
	t.Helper()
	kubetest.Eventually(t, "an activation to wait for a pod", func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, f := range g.activations[id] {
			if f.waiting.Load() != nil {
				return nil
			}
		}
		return errors.New("none does")
	})
}

// claimed reports whether the pod carries a claim.
func (w *world) claimed(name string) bool {
	for _, p := range w.pods() {
		if p.Name == name {
			return p.Annotations[v1alpha1.AnnotationClaim] != ""
		}
	}
	return false
}
