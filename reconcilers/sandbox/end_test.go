package sandbox

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/address"
	"github.com/sandlane/sandlane/reconcilers/internal/pausecount"
)

// rig is a Reconciler whose live reads and writes of a status are counted.
type rig struct {
	*Reconciler
	clock *clocktesting.FakePassiveClock
	reads atomic.Int32
	// written are the phases of the statuses that were written.
	mu      sync.Mutex
	written []v1alpha1.SandboxPhase // guarded by mu
	woken   atomic.Bool
	// fence is what the gateways answer; asked are the addresses.
	fence error
	asked []string
	rv    uint64
}

func (g *rig) Fence(_ context.Context, addr netip.Addr, rv uint64) error {
	g.rv = rv
	g.asked = append(g.asked, addr.String())
	return g.fence
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Sandbox{}).
		WithIndex(&corev1.Pod{}, indexSandboxID, sandboxIDOf).WithIndex(&v1alpha1.Sandbox{}, pausecount.IndexPool, pausecount.PoolsOf).WithObjects(objects...).Build()
	g := &rig{clock: clocktesting.NewFakePassiveClock(now)}
	live := interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			g.reads.Add(1)
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			g.reads.Add(1)
			if err := c.List(ctx, l, opts...); err != nil {
				return err
			}
			l.SetResourceVersion("1000") // the fake client's lists have none
			return nil
		},
	})
	writing := interceptor.NewClient(c, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			err := c.SubResource(sub).Patch(ctx, o, p, opts...)
			if err == nil {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.written = append(g.written, o.(*v1alpha1.Sandbox).Status.Phase)
			}
			return err
		},
	})
	g.Reconciler = &Reconciler{Client: writing, APIReader: live, Fencer: g, Ledger: address.NewLedger(g.clock, 0), Clock: g.clock}
	g.complete()
	g.fences.requeue = func(string) { g.woken.Store(true) }
	return g
}

func (g *rig) sandbox(t *testing.T) *v1alpha1.Sandbox {
	t.Helper()
	s := &v1alpha1.Sandbox{}
	if err := g.Client.Get(t.Context(), client.ObjectKey{Name: "s"}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// step is a look, and the one that the gateways' answers wake.
func (g *rig) step(t *testing.T) (wait time.Duration, reads int32) {
	t.Helper()
	before := g.reads.Load()
	for {
		wait = g.look(t)
		if g.fences.asks.Wait(); !g.woken.Swap(false) {
			return wait, g.reads.Load() - before
		}
	}
}

func (g *rig) look(t *testing.T) time.Duration {
	t.Helper()
	result, err := g.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "s"}})
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

func endingOne() (*v1alpha1.Sandbox, *corev1.Pod) {
	s, pod := bound()
	s.UID, s.Finalizers = "uid", []string{v1alpha1.FinalizerSandbox}
	s.Spec.End = &v1alpha1.End{Reason: v1alpha1.EndReleased, At: metav1.NewTime(now)}
	return s, pod
}

// TestWhoWaitsForGatewaysReadsNothing: the pod is stopped at once; after that an end
// costs no live read.
func TestWhoWaitsForGatewaysReadsNothing(t *testing.T) {
	s, pod := endingOne()
	g := newRig(t, s, pod)
	g.fence = errors.New("a gateway is away")
	if wait, reads := g.step(t); wait != time.Second || reads == 0 || len(g.asked) != 1 {
		t.Errorf("first: again after %v with %d live reads, asked %v", wait, reads, g.asked)
	}
	if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || v1alpha1.PhaseOf(pod) != v1alpha1.PodStopping {
		t.Errorf("the pod is %s, %v", v1alpha1.PhaseOf(pod), err)
	}
	g.clock.SetTime(now.Add(400 * time.Millisecond))
	if wait, reads := g.step(t); wait != 600*time.Millisecond || reads != 0 || len(g.asked) != 1 {
		t.Errorf("back-off: again after %v with %d live reads, asked %v", wait, reads, g.asked)
	}
	g.clock.SetTime(now.Add(time.Second))
	g.fence = nil
	if _, reads := g.step(t); reads != 0 {
		t.Errorf("%d live reads for what was read before", reads)
	}
	if s := g.sandbox(t); s.Status.Phase != v1alpha1.SandboxEnded || s.Status.FencedAt == nil || s.Status.Address != "10.0.0.1" {
		t.Errorf("status %+v", s.Status)
	}
}

// runningOne is one that ends, whose status says what it did when it ran, and its
// pod.
func runningOne() (*v1alpha1.Sandbox, *corev1.Pod) {
	s, pod := endingOne()
	had(s, "c")
	s.Status.Phase = v1alpha1.SandboxRunning
	pod.Finalizers = []string{"other/one", v1alpha1.FinalizerPod}
	return s, pod
}

// The end of a sandbox that ran is one write to its status, and one to its pod,
// which lets it go.
func TestAnEndIsOneStatusWrite(t *testing.T) {
	s, pod := runningOne()
	g := newRig(t, s, pod)
	g.step(t)
	if s := g.sandbox(t); s.Status.Phase != v1alpha1.SandboxEnded || s.Status.FencedAt == nil || s.Status.Stop == nil || s.Status.EndedAt == nil {
		t.Errorf("status %+v", s.Status)
	}
	if !slices.Equal(g.written, []v1alpha1.SandboxPhase{v1alpha1.SandboxEnded}) {
		t.Errorf("statuses written: %v", g.written)
	}
	if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || !slices.Equal(pod.Finalizers, []string{"other/one"}) {
		t.Errorf("finalizers %v, %v", pod.Finalizers, err)
	}
}

// A fence that is not quick does not keep what is known from being written.
func TestASlowFenceIsEndingMeanwhile(t *testing.T) {
	s, pod := runningOne()
	g := newRig(t, s, pod)
	answer := make(chan error)
	g.fences.attempt = func(context.Context, netip.Addr, uint64, bool) error { return <-answer }
	if wait := g.look(t); wait != quickFence || len(g.written) != 0 {
		t.Errorf("again after %v, written %v", wait, g.written)
	}
	g.clock.SetTime(now.Add(quickFence))
	g.look(t)
	if s := g.sandbox(t); s.Status.Phase != v1alpha1.SandboxEnding || s.Status.Stop == nil || s.Status.FencedAt != nil {
		t.Errorf("status %+v", s.Status)
	}
	answer <- nil
	g.fences.asks.Wait()
	g.look(t)
	if s := g.sandbox(t); s.Status.Phase != v1alpha1.SandboxEnded || s.Status.FencedAt == nil {
		t.Errorf("status %+v", s.Status)
	}
}

// Until the address of the claim is on record the pod is neither stopped nor let go,
// and one that may be used again is not let go at all.
func TestAPodIsLetGoOnlyWhenItsAddressIsOnRecord(t *testing.T) {
	kept := func(t *testing.T, g *rig, pod *corev1.Pod) bool {
		t.Helper()
		if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		return slices.Contains(pod.Finalizers, v1alpha1.FinalizerPod)
	}
	t.Run("not on record", func(t *testing.T) {
		s, pod := runningOne()
		s.Status = v1alpha1.SandboxStatus{}
		g := newRig(t, s, pod)
		refused := errors.New("the status cannot be written")
		g.Client = interceptor.NewClient(g.Client.(client.WithWatch), interceptor.Funcs{
			SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
				return refused
			},
		})
		if _, err := g.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "s"}}); !errors.Is(err, refused) {
			t.Fatal(err)
		}
		if !kept(t, g, pod) || v1alpha1.PhaseOf(pod) == v1alpha1.PodStopping {
			t.Errorf("the pod is %s, with finalizers %v", v1alpha1.PhaseOf(pod), pod.Finalizers)
		}
	})
	t.Run("used again", func(t *testing.T) {
		s, pod := runningOne()
		pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
		pool.Spec.RecyclePolicy = v1alpha1.RecycleInPlace
		g := newRig(t, s, pod, pool)
		g.step(t)
		if !kept(t, g, pod) || v1alpha1.PhaseOf(pod) != v1alpha1.PodStopping {
			t.Errorf("the pod is %s, with finalizers %v", v1alpha1.PhaseOf(pod), pod.Finalizers)
		}
	})
}

// A controller that dies between the pod's write and the status leaves both to the
// next one, be the pod still there or not.
func TestTheNextControllerFinishesAnEnd(t *testing.T) {
	for name, gone := range map[string]bool{"the pod is there": false, "the pod has gone": true} {
		t.Run(name, func(t *testing.T) {
			s, pod := runningOne()
			pod.Finalizers = []string{v1alpha1.FinalizerPod}
			g := newRig(t, s, pod)
			g.fences.attempt = func(context.Context, netip.Addr, uint64, bool) error { return errors.New("it died first") }
			g.look(t)
			g.fences.asks.Wait()
			if gone {
				if err := g.Client.Delete(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
			}
			g.fences = newFences(g.clock, g.attempt)
			g.fences.requeue = func(string) { g.woken.Store(true) }
			g.woken.Store(false)
			g.step(t)
			s = g.sandbox(t)
			if s.Status.Phase != v1alpha1.SandboxEnded || s.Status.FencedAt == nil || s.Status.Address != "10.0.0.1" || s.Status.Stop == nil || len(g.asked) != 1 {
				t.Errorf("status %+v, asked %v", s.Status, g.asked)
			}
		})
	}
}

// TestEndAfterANewBinding: the address of the former claim is fenced with the
// record, but its pod's claim is not taken for fenced: the pod may still run.
func TestEndAfterANewBinding(t *testing.T) {
	s, pod := endingOne()
	had(s, "former")
	unclaimed(pod, v1alpha1.PodIdle)
	g := newRig(t, s, pod)
	g.Ledger.NoteClaim("former", "s", "10.0.0.1")
	g.step(t)
	if s := g.sandbox(t); s.Status.Phase != v1alpha1.SandboxEnded || s.Status.FencedAt == nil || len(g.asked) != 1 {
		t.Errorf("status %+v, asked %v", s.Status, g.asked)
	}
	g.step(t)
	if held := g.Ledger.Unfenced(); len(held) != 1 || held[0].ClaimID != "former" {
		t.Errorf("held %v, want the former claim", held)
	}
}

// TestFenceOfAFormerAddressIsAsNewAsTheEnd: the pod that the sandbox is bound to
// was last written before the former one was stopped.
func TestFenceOfAFormerAddressIsAsNewAsTheEnd(t *testing.T) {
	s, pod := endingOne()
	had(s, "former")
	pod.Labels[v1alpha1.LabelSandboxID], pod.Annotations[v1alpha1.AnnotationClaim] = "another", "another sandbox's"
	g := newRig(t, s, pod)
	g.step(t)
	if g.rv != 1000 || len(g.asked) != 1 {
		t.Errorf("fenced %v with %d, want the version of a list", g.asked, g.rv)
	}
}

// TestAddressOnRecordIsOneThatServed: a pod whose IP is not the noted address is
// not reached, and its address not recorded; but it is taken.
func TestAddressOnRecordIsOneThatServed(t *testing.T) {
	s, pod := endingOne()
	s.Spec.End = nil
	had(s, "former")
	pod.Annotations[v1alpha1.AnnotationAddress], pod.Status.PodIP = "10.0.0.2", "10.0.0.9"
	g := newRig(t, s, pod)
	g.step(t)
	if s := g.sandbox(t); s.Status.Address != "10.0.0.1" || s.Status.AddressClaim != "former" {
		t.Errorf("recorded %s of claim %s", s.Status.Address, s.Status.AddressClaim)
	}
	if held := g.Ledger.Unfenced(); len(held) != 1 || held[0].Address != "10.0.0.2" {
		t.Errorf("held %v, want the claimed pod's", held)
	}
	pod.Status.PodIP = "10.0.0.2"
	if err := g.Client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	g.step(t)
	if s := g.sandbox(t); s.Status.Address != "10.0.0.2" || s.Status.AddressClaim != "c" {
		t.Errorf("recorded %s of claim %s", s.Status.Address, s.Status.AddressClaim)
	}
}

// TestUnbindingStopsThePodFirst: the claim of a first request whose time is over
// must not land after its binding is gone.
func TestUnbindingStopsThePodFirst(t *testing.T) {
	s, pod := endingOne()
	s.Spec.End, s.Spec.FirstRequest = nil, true
	s.Spec.Timeouts.Startup = &metav1.Duration{Duration: time.Second}
	unclaimed(pod, v1alpha1.PodIdle)
	g := newRig(t, s, pod)
	g.step(t)
	if g.sandbox(t).DeletionTimestamp != nil {
		t.Fatal("deleted while it is bound")
	}
	g.clock.SetTime(now.Add(DefaultBindGrace))
	if _, reads := g.step(t); reads == 0 {
		t.Error("unbound by the cache alone")
	}
	if s := g.sandbox(t); s.Spec.Binding != nil || s.DeletionTimestamp != nil {
		t.Errorf("binding %+v, deleted %v", s.Spec.Binding, s.DeletionTimestamp)
	}
	if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || v1alpha1.PhaseOf(pod) != v1alpha1.PodStopping {
		t.Errorf("the pod is %s, %v", v1alpha1.PhaseOf(pod), err)
	}
	g.step(t)
	if g.sandbox(t).DeletionTimestamp == nil {
		t.Error("the next look does not delete it")
	}
}
