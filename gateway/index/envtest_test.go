package index

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// cluster writes what controller and gateways would.
type cluster struct {
	t  *testing.T
	c  client.Client
	ns string
}

// pod creates an idle pod with a fenced address.
func (k cluster) pod(name, addr string) *corev1.Pod {
	k.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.ns, Name: name, Finalizers: []string{v1alpha1.FinalizerPod},
			Labels:      map[string]string{v1alpha1.LabelPool: "pool", v1alpha1.LabelPhase: string(v1alpha1.PodIdle)},
			Annotations: map[string]string{v1alpha1.AnnotationAddress: addr}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "local/echo"}}},
	}
	must(k.t, k.c.Create(k.t.Context(), p))
	k.status(p, addr)
	return p
}

func (k cluster) status(p *corev1.Pod, addr string) {
	k.t.Helper()
	p.Status.PodIP, p.Status.PodIPs = addr, []corev1.PodIP{{IP: addr}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	must(k.t, k.c.Status().Update(k.t.Context(), p))
}

// claim writes the pod's side of a claim.
func (k cluster) claim(p *corev1.Pod, id, claim string, phase v1alpha1.PodPhase) {
	k.t.Helper()
	p.Labels[v1alpha1.LabelSandboxID], p.Annotations[v1alpha1.AnnotationClaim] = id, claim
	k.phase(p, phase)
}

func (k cluster) phase(p *corev1.Pod, phase v1alpha1.PodPhase) {
	k.t.Helper()
	p.Labels[v1alpha1.LabelPhase] = string(phase)
	must(k.t, k.c.Update(k.t.Context(), p))
}

// sandbox creates a sandbox, bound to the pod unless that is nil.
func (k cluster) sandbox(claim string, p *corev1.Pod) *v1alpha1.Sandbox {
	k.t.Helper()
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: kubetest.Name("s"), Finalizers: []string{v1alpha1.FinalizerSandbox}},
		Spec: v1alpha1.SandboxSpec{Namespace: k.ns, Pool: "pool", Team: "team"}}
	if p != nil {
		s.Spec.Binding = &v1alpha1.Binding{ClaimID: claim, PodName: p.Name, PodUID: string(p.UID)}
	}
	must(k.t, k.c.Create(k.t.Context(), s))
	return s
}

func (k cluster) end(s *v1alpha1.Sandbox) {
	k.t.Helper()
	s.Spec.End = &v1alpha1.End{Reason: v1alpha1.EndReleased, At: metav1.Now()}
	must(k.t, k.c.Update(k.t.Context(), s))
}

// startIndex runs an index until the test ends.
func startIndex(t *testing.T, c client.WithWatch, h Hooks) *Index {
	t.Helper()
	x := New(Options{Client: c, Hooks: h})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { must(t, x.Start(ctx)) })
	t.Cleanup(func() { stop(); running.Wait() })
	must(t, x.WaitSynced(t.Context()))
	return x
}

// wantState waits until index and live read agree on the sandbox's state, and
// fails at once on a route that should not be.
func wantState(t *testing.T, x *Index, live *Live, id string, want routing.State) routing.Answer {
	t.Helper()
	got, err := live.Resolve(t.Context(), id)
	must(t, err)
	if got.State != want || (got.Route != nil) != (want == routing.Running) {
		t.Fatalf("live: %v, route %+v; want %v", got.State, got.Route, want)
	}
	var a routing.Answer
	kubetest.Eventually(t, fmt.Sprintf("%s %v in the index", id, want), func() error {
		if a = x.Resolve(id); a.State != want {
			return fmt.Errorf("it is %v", a.State)
		}
		return nil
	})
	if (a.Route != nil) != (want == routing.Running) {
		t.Fatalf("index: route %+v in state %v", a.Route, want)
	}
	if want == routing.Running && !reflect.DeepEqual(a.Route, got.Route) {
		t.Fatalf("index has %+v, live %+v", a.Route, got.Route)
	}
	return a
}

func TestLife(t *testing.T) {
	c := kubetest.Client(t)
	k := cluster{t: t, c: c, ns: kubetest.Namespace(t)}
	live := NewLive(LiveOptions{Reader: c})
	var j journal
	x := startIndex(t, c, j.hooks())

	wantState(t, x, live, kubetest.Name("nobody"), routing.Unknown)
	p := k.pod("p", "198.18.0.5")
	unbound := k.sandbox("", nil)
	wantState(t, x, live, unbound.Name, routing.NoPod)
	s := k.sandbox("c1", p)
	wantState(t, x, live, s.Name, routing.Starting)
	k.claim(p, s.Name, "c1", v1alpha1.PodStarting)
	wantState(t, x, live, s.Name, routing.Starting)
	k.phase(p, v1alpha1.PodRunning)
	a := wantState(t, x, live, s.Name, routing.Running)
	if a.Route.Addr.String() != "198.18.0.5" || fmt.Sprint(a.Route.PodRV) != p.ResourceVersion || a.Team != "team" || a.PodName != "p" {
		t.Errorf("answer %+v, route %+v", a, a.Route)
	}
	if x.PodRV() < a.Route.PodRV {
		t.Errorf("PodRV = %d, behind a record of %d", x.PodRV(), a.Route.PodRV)
	}
	// Its address changes: fail closed, and recover if it comes back.
	k.status(p, "198.18.0.6")
	wantState(t, x, live, s.Name, routing.Starting)
	k.status(p, "198.18.0.5")
	wantState(t, x, live, s.Name, routing.Running)
	// A sandbox whose binding names the pod too, but which the pod does not name.
	thief := k.sandbox("c1", p)
	wantState(t, x, live, thief.Name, routing.Starting)
	// The pod is being deleted while the sandbox lives.
	must(t, c.Delete(t.Context(), p))
	wantState(t, x, live, s.Name, routing.Starting)
	k.end(s)
	wantState(t, x, live, s.Name, routing.Ended)
	must(t, c.Delete(t.Context(), s))
	wantState(t, x, live, s.Name, routing.Ended)
	s.Finalizers = nil
	must(t, client.IgnoreNotFound(c.Patch(t.Context(), s, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))))
	wantState(t, x, live, s.Name, routing.Unknown)
	// Another sandbox is deleted before it was ended.
	must(t, c.Delete(t.Context(), unbound))
	wantState(t, x, live, unbound.Name, routing.Ended)

	lines := j.take()
	for _, want := range []string{"available p", "unavailable " + k.ns + "/pool " + string(p.UID), "changed " + s.Name,
		"over " + s.Name + " c1", "settled " + s.Name, "changed " + unbound.Name} {
		found := false
		for _, line := range lines {
			found = found || line == want
		}
		if !found {
			t.Errorf("no hook call %q", want)
		}
	}
}

func TestPools(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	x := startIndex(t, c, Hooks{})
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"},
		Spec: v1alpha1.SandboxPoolSpec{TemplateRef: &v1alpha1.TemplateRef{Name: "t"}, FirstRequest: &v1alpha1.FirstRequest{Access: v1alpha1.AccessAPIKey}}}
	must(t, c.Create(t.Context(), pool))
	kubetest.Eventually(t, "the pool", func() error {
		if p, ok := x.Pool(ns, "p"); !ok || p.Access() != v1alpha1.AccessAPIKey || p.Spec.PodCreationImagePolicy != v1alpha1.ImagePolicyPoolDefault {
			return fmt.Errorf("pool %+v", p)
		}
		return nil
	})
	must(t, c.Delete(t.Context(), pool))
	kubetest.Eventually(t, "the end of the pool", func() error {
		if _, ok := x.Pool(ns, "p"); ok {
			return errors.New("still there")
		}
		return nil
	})
}

// The first read of each kind is consistent, streamed or listed, and so is that
// of a Relist; what vanished while the index could not see it is gone after.
func TestFirstReadsAreConsistent(t *testing.T) {
	for _, streaming := range []bool{true, false} {
		t.Run(fmt.Sprintf("streaming %v", streaming), func(t *testing.T) {
			var mu sync.Mutex
			var reads []string
			blind := false // watches end at once, without an event
			note := func(kind string, o *client.ListOptions) {
				mu.Lock()
				defer mu.Unlock()
				reads = append(reads, fmt.Sprintf("%s from %q", kind, o.Raw.ResourceVersion))
			}
			base := kubetest.Client(t)
			c := interceptor.NewClient(base, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
					note("list", opts[0].(*client.ListOptions))
					return c.List(ctx, l, opts...)
				},
				Watch: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
					o := opts[0].(*client.ListOptions)
					if o.Raw.SendInitialEvents != nil {
						if !streaming {
							return nil, errors.New("streaming is off")
						}
						note("stream", o)
						return c.Watch(ctx, l, opts...)
					}
					mu.Lock()
					defer mu.Unlock()
					if blind {
						return watch.NewFake(), nil
					}
					return c.Watch(ctx, l, opts...)
				},
			})
			k := cluster{t: t, c: base, ns: kubetest.Namespace(t)}
			p := k.pod("p", "198.18.0.9")
			s := k.sandbox("c", p)
			k.claim(p, s.Name, "c", v1alpha1.PodRunning)
			mu.Lock()
			blind = !streaming
			mu.Unlock()
			var j journal
			x := startIndex(t, c, j.hooks())
			if a := x.Resolve(s.Name); a.State != routing.Running {
				t.Fatalf("%v after the first list", a.State)
			}
			k.phase(p, v1alpha1.PodStopping)
			must(t, x.Relist(t.Context()))
			if a := x.Resolve(s.Name); a.State != routing.Starting {
				t.Errorf("%v after Relist", a.State)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(reads) != 2*len(x.sources) {
				t.Errorf("reads %q", reads)
			}
			for _, read := range reads {
				if read != `list from ""` && read != `stream from ""` {
					t.Errorf("read: %s", read)
				}
			}
		})
	}
}
