package activation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

func TestOrderOfMembers(t *testing.T) {
	member := func(pool string, priority, scaleUp int32, change ...func(*candidate)) candidate {
		c := candidate{Member: routing.Member{Pool: pool, Priority: priority, ScaleUpPriority: scaleUp}}
		for _, f := range change {
			f(&c)
		}
		return c
	}
	stocked := func(c *candidate) { c.stocked = true }
	saturated := func(c *candidate) { c.Saturated = true }
	for _, tt := range []struct {
		name string
		all  []candidate
		want []string
	}{
		{"none", nil, nil},
		{"by name", []candidate{member("b", 0, 0), member("a", 0, 0)}, []string{"a", "b"}},
		{"waiting, by scaleUpPriority", []candidate{member("a", 0, 2), member("b", 9, 1)}, []string{"b", "a"}},
		{"waiting, then by priority", []candidate{member("a", 2, 1), member("b", 1, 1)}, []string{"b", "a"}},
		{"stocked, by priority", []candidate{member("a", 2, 0, stocked), member("b", 1, 9, stocked)}, []string{"b", "a"}},
		{"idle pods first", []candidate{member("a", 0, 0), member("b", 9, 9, stocked)}, []string{"b", "a"}},
		{"idle pods first, also of a saturated one", []candidate{member("a", 0, 0), member("b", 9, 9, stocked, saturated)}, []string{"b", "a"}},
		{"saturated ones last", []candidate{member("a", 0, 0, saturated), member("b", 9, 9)}, []string{"b", "a"}},
		{"all saturated", []candidate{member("b", 0, 2, saturated), member("a", 0, 1, saturated)}, []string{"a", "b"}},
		{"of those with idle pods too", []candidate{member("a", 0, 0, stocked, saturated), member("b", 9, 0, stocked)}, []string{"b", "a"}},
	} {
		var got []string
		for _, c := range sortMembers(tt.all) {
			got = append(got, c.Pool)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestMemberThatIsWorthMovingTo(t *testing.T) {
	member := func(pool string, stocked, saturated bool) candidate {
		return candidate{routing.Member{Pool: pool, Saturated: saturated}, stocked}
	}
	for name, tt := range map[string]struct {
		all  []candidate
		want bool
	}{
		"it waits at the first":                  {[]candidate{member("here", false, false), member("z", false, false)}, false},
		"another comes first, and is empty too":  {[]candidate{member("a", false, false), member("here", false, false)}, false},
		"another has a pod":                      {[]candidate{member("z", true, false), member("here", false, false)}, true},
		"another has a pod, and may get no more": {[]candidate{member("z", true, true), member("here", false, false)}, true},
		"both have pods":                         {[]candidate{member("here", true, false), member("z", true, false)}, false},
		"it waits at a saturated one":            {[]candidate{member("here", false, true), member("z", false, false)}, true},
		"all are saturated":                      {[]candidate{member("a", false, true), member("here", false, true)}, false},
		"its pool is no member any more":         {[]candidate{member("a", false, false)}, true},
		"no member is left":                      {nil, false},
	} {
		if got := isBetter(sortMembers(tt.all), "here"); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// envGateway is a gateway of an env "env" with members a and b, of which a comes first
// where a claim waits.
func (w *world) envGateway(opts ...schedule.Option) *gateway {
	w.t.Helper()
	return w.envGatewayOn(w.c, opts...)
}

// envGatewayOn is envGateway with a client that may have faults.
func (w *world) envGatewayOn(c client.Client, opts ...schedule.Option) *gateway {
	w.t.Helper()
	g := w.gateway(c, opts...)
	g.o.Members = func(namespace, env string) []routing.Member {
		if namespace != w.ns || env != "env" {
			return nil
		}
		return []routing.Member{{Pool: "b", ScaleUpPriority: 2, Priority: 1}, {Pool: "a", ScaleUpPriority: 1, Priority: 2}}
	}
	for _, pool := range []string{"a", "b"} {
		g.set.PoolChanged(w.ns, pool, true)
	}
	return g
}

// idleOf makes n pods of a pool that may be claimed.
func (w *world) idleOf(pool string, n int) {
	w.t.Helper()
	for range n {
		pod := idlePod(w.ns)
		pod.Labels[v1alpha1.LabelPool] = pool
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

// byEnv asks for a new sandbox of the env.
func (w *world) byEnv(id string, patience time.Duration) routing.Request {
	return routing.Request{ID: id, Namespace: w.ns, Env: "env", New: true, Deadline: time.Now().Add(patience)}
}

// from checks that the sandbox of the env is on a pod of the pool, and that pod and
// sandbox say so.
func (w *world) from(id, pool string) {
	w.t.Helper()
	pod, s := w.backed(id), w.sandbox(id)
	if pod.Labels[v1alpha1.LabelPool] != pool || s.Spec.Pool != pool || s.Spec.Env != "env" || pod.Labels[v1alpha1.LabelEnv] != "env" {
		w.t.Errorf("%s: spec.env %q, spec.pool %q, on a pod of %q with env %q; want pool %s", id, s.Spec.Env, s.Spec.Pool,
			pod.Labels[v1alpha1.LabelPool], pod.Labels[v1alpha1.LabelEnv], pool)
	}
}

func TestClaimGoesToTheMemberThatHasAPod(t *testing.T) {
	w := newWorld(t)
	w.idleOf("b", 1)
	w.idleOf("a", 2)
	g := w.envGateway()
	kubetest.Eventually(t, "the pods to be known", func() error {
		for _, pool := range []string{"a", "b"} {
			if s, _ := g.set.Get(w.ns, pool); !s.Spare() {
				return errors.New(pool)
			}
		}
		return nil
	})
	first, second := kubetest.Name("s"), kubetest.Name("s")
	g.activates(t, w.byEnv(first, 20*time.Second))
	w.from(first, "b") // by priority
	g.activates(t, w.byEnv(second, 20*time.Second))
	w.from(second, "a") // b is empty
}

// A request that waits at one member moves to the one that gets a pod.
func TestWaitingRequestMovesToTheMemberWithAPod(t *testing.T) {
	w := newWorld(t)
	g := w.envGateway()
	id := kubetest.Name("s")
	done := make(chan error, 1)
	go func() { done <- g.Activate(t.Context(), w.byEnv(id, 20*time.Second)) }()
	g.queues(t, id)
	kubetest.Eventually(t, "it to wait at the member that is to grow", func() error {
		if len(g.set.Waiting()) != 1 {
			return fmt.Errorf("%v", g.set.Waiting())
		}
		for key := range g.set.Waiting() {
			if key.Name != "a" {
				return errors.New(key.Name)
			}
		}
		return nil
	})
	w.idleOf("b", 1)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.from(id, "b")
	if waits := g.set.Waiting(); len(waits) != 0 {
		t.Errorf("it waits on: %v", waits)
	}
}

// After a read that failed a waiting request goes on looking each second where a pod is.
func TestWaitingRequestMovesAfterAReadThatFailed(t *testing.T) {
	w := newWorld(t)
	var failed atomic.Bool
	g := w.envGatewayOn(interceptor.NewClient(w.c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*v1alpha1.Sandbox); ok && !failed.Swap(true) {
				return apierrors.NewTooManyRequests("busy", 1)
			}
			return c.Get(ctx, k, o, opts...)
		},
	}))
	id := kubetest.Name("s")
	done := make(chan error, 1)
	go func() { done <- g.Activate(t.Context(), w.byEnv(id, 20*time.Second)) }()
	g.queues(t, id)
	kubetest.Eventually(t, "a read to fail", func() error {
		if !failed.Load() {
			return errors.New("none has yet")
		}
		return nil
	})
	began := time.Now()
	w.idleOf("b", 1)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > callTimeout-followAfter {
		t.Errorf("it took %v to the pod of another member", took)
	}
	w.from(id, "b")
}

// A request that waits at a member which cannot grow any more moves to one that can.
func TestWaitingRequestLeavesASaturatedMember(t *testing.T) {
	w := newWorld(t)
	g := w.envGateway()
	var saturated atomic.Bool
	before := g.o.Members
	g.o.Members = func(namespace, env string) []routing.Member {
		all := before(namespace, env)
		for i := range all {
			all[i].Saturated = all[i].Pool == "a" && saturated.Load()
		}
		return all
	}
	id := kubetest.Name("s")
	done := make(chan error, 1)
	go func() { done <- g.Activate(t.Context(), w.byEnv(id, 20*time.Second)) }()
	waitsAt := func(pool string) {
		t.Helper()
		kubetest.Eventually(t, "it to wait at "+pool, func() error {
			all := g.set.Waiting()
			for key := range all {
				if key.Name == pool && len(all) == 1 {
					return nil
				}
			}
			return fmt.Errorf("%v", all)
		})
	}
	waitsAt("a")
	saturated.Store(true)
	waitsAt("b")
	w.idleOf("b", 1)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.from(id, "b")
}

func TestNextMember(t *testing.T) {
	w := newWorld(t)
	g := w.envGateway(schedule.WithQueueSize(4))
	full := func(pool string) {
		s, _ := g.set.Get(w.ns, pool)
		for s.Enqueue(&schedule.ClaimRequest{Deadline: time.Now().Add(time.Minute), ResultCh: make(chan schedule.ClaimResult, 1)}) {
		}
	}
	full("a")
	g.fails(t, w.byEnv(kubetest.Name("s"), 20*time.Second), errQueueFull) // b would order pods for what a has ordered them for
	w.idleOf("b", 1)
	kubetest.Eventually(t, "b's pod to be known", func() error {
		if s, _ := g.set.Get(w.ns, "b"); !s.Spare() {
			return errors.New("no spare pod")
		}
		return nil
	})
	id := kubetest.Name("s")
	g.activates(t, w.byEnv(id, 20*time.Second)) // it needs none
	w.from(id, "b")

	g.set.PoolChanged(w.ns, "a", false)
	done := make(chan error, 1)
	go func() { done <- g.Activate(t.Context(), w.byEnv(kubetest.Name("s"), 20*time.Second)) }()
	kubetest.Eventually(t, "it to wait at the member that is left", func() error {
		if n := len(g.set.Waiting()); n != 1 {
			return fmt.Errorf("%d pools have waiting requests", n)
		}
		return nil
	})
	g.set.PoolChanged(w.ns, "b", false) // it goes while the request waits
	if err := <-done; !errors.Is(err, routing.ErrPoolNotFound) {
		t.Errorf("no member is left: %v", err)
	}
	g.fails(t, w.byEnv(kubetest.Name("s"), time.Second), routing.ErrNoMember)
	r := w.byEnv(kubetest.Name("s"), time.Second)
	r.Env = "none"
	g.fails(t, r, routing.ErrNoMember)
}

// However many first requests an env gets at once, they wait in the queue of one member: each
// member would order pods for those in its own.
func TestFloodFillsOneMember(t *testing.T) {
	w := newWorld(t)
	g := w.envGateway(schedule.WithQueueSize(8))
	errs := make(chan error, 40)
	for range cap(errs) {
		r := w.byEnv(kubetest.Name("s"), 2*time.Second)
		go func() { errs <- g.Activate(t.Context(), r) }()
	}
	for range cap(errs) {
		if err := <-errs; !errors.Is(err, routing.ErrNoCapacity) {
			t.Errorf("answered with %v", err)
		}
		for key := range g.set.Waiting() {
			if key.Name != "a" {
				t.Fatalf("requests wait at pool %s too", key.Name)
			}
		}
	}
}

// A request that names another env, or a pool, does not get the sandbox of this env.
func TestSandboxOfAnotherEnv(t *testing.T) {
	w := newWorld(t)
	w.idleOf("a", 1)
	g := w.envGateway()
	id := kubetest.Name("s")
	g.activates(t, w.byEnv(id, 20*time.Second))
	g.activates(t, w.byEnv(id, 20*time.Second)) // again
	for name, change := range map[string]func(*routing.Request){
		"another env":     func(r *routing.Request) { r.Env = "other" },
		"the member":      func(r *routing.Request) { r.Env, r.Pool = "", "a" },
		"another pool":    func(r *routing.Request) { r.Env, r.Pool = "", "pool" },
		"another team":    func(r *routing.Request) { r.Team = "other" },
		"exists, by pool": func(r *routing.Request) { r.Env, r.Pool, r.New = "", "a", false },
	} {
		r := w.byEnv(id, 5*time.Second)
		change(&r)
		if err := g.Activate(t.Context(), r); !errors.Is(err, routing.ErrExists) && !errors.Is(err, routing.ErrPoolNotFound) && !errors.Is(err, routing.ErrNoMember) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := w.byEnv(id, 20*time.Second)
	r.New, r.MayClaim = false, true
	g.activates(t, r)
	w.from(id, "a")
}

// Two gateways, two members, stock that comes to either: one claim an ID, and each pod
// for one.
func TestOneClaimForAnIDOfAnEnv(t *testing.T) {
	w := newWorld(t)
	gateways := []*gateway{w.envGateway(schedule.WithSeed(1)), w.envGateway(schedule.WithSeed(2))}
	const n = 30
	ids := make([]string, n)
	for i := range ids {
		ids[i] = kubetest.Name("s")
	}
	done := make(chan []error, 1)
	go func() {
		done <- together(2*n, func(i int) error {
			g, r := gateways[i%2], w.byEnv(ids[i/2], 40*time.Second)
			err := g.Activate(t.Context(), r)
			if errors.Is(err, routing.ErrExists) { // the other gateway made the sandbox and lost its pod: ask again, as a request does
				r.New, r.MayClaim = false, true
				err = g.Activate(t.Context(), r)
			}
			return err
		})
	}()
	for i := range n {
		w.idleOf([]string{"a", "b"}[i%2], 1)
	}
	for _, err := range <-done {
		if err != nil {
			t.Error(err)
		}
	}
	pods := map[string]bool{}
	for _, id := range ids {
		pod, s := w.backed(id), w.sandbox(id)
		pods[pod.Name] = true
		if s.Spec.Env != "env" || s.Spec.Pool != pod.Labels[v1alpha1.LabelPool] {
			t.Errorf("%s: %+v on a pod of %s", id, s.Spec, pod.Labels[v1alpha1.LabelPool])
		}
	}
	if len(pods) != n {
		t.Errorf("%d pods for %d sandboxes", len(pods), n)
	}
}
