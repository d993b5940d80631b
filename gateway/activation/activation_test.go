package activation

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// together runs n activations at once and returns their errors.
func together(n int, activate func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = activate(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

func TestManyRequestsForOneNewID(t *testing.T) {
	w := newWorld(t)
	w.idle(5)
	var creates, podCalls atomic.Int64
	counting := faulty(w.c, func(o client.Object, call func() error) error {
		if _, pod := o.(*corev1.Pod); pod {
			podCalls.Add(1)
		} else if len(o.GetFinalizers()) > 0 {
			creates.Add(1)
		}
		return call()
	})
	gateways := []*gateway{w.gateway(counting, schedule.WithSeed(1)), w.gateway(counting, schedule.WithSeed(2))}
	id := kubetest.Name("one")
	for _, err := range together(200, func(i int) error {
		return gateways[i%2].Activate(t.Context(), w.request(id, true, 20*time.Second))
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	if n := creates.Load(); n > 2 {
		t.Errorf("two gateways sent %d creates for one ID", n)
	}
	if n := podCalls.Load(); n > 20 { // the claim, and the follower's reads of the pod
		t.Errorf("%d calls about pods for one ID", n)
	}
	pod := w.backed(id)
	claimed := 0
	for _, p := range w.pods() {
		if v1alpha1.PhaseOf(&p) != v1alpha1.PodIdle {
			claimed++
		}
	}
	if claimed != 1 {
		t.Errorf("%d pods left idle for one sandbox", claimed)
	}
	s := w.sandbox(id)
	if !s.Spec.FirstRequest || len(s.Finalizers) != 1 || s.Finalizers[0] != v1alpha1.FinalizerSandbox {
		t.Errorf("sandbox: %+v %v", s.Spec, s.Finalizers)
	}
	for i, g := range gateways {
		r := g.cache.Get(id)
		if r == nil || r.PodUID != string(pod.UID) || r.ClaimID != s.Spec.Binding.ClaimID || r.Addr.String() != pod.Status.PodIP {
			t.Errorf("gateway %d has route %+v", i, r)
		}
	}
}

func TestManyNewIDs(t *testing.T) {
	w := newWorld(t)
	w.idle(100)
	gateways := []*gateway{w.gateway(w.c, schedule.WithSeed(1)), w.gateway(w.c, schedule.WithSeed(2))}
	prefix := kubetest.Name("many")
	id := func(i int) string { return fmt.Sprintf("%s-%d", prefix, i) }
	for _, err := range together(100, func(i int) error {
		return gateways[i%2].Activate(t.Context(), w.request(id(i), true, 40*time.Second))
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	names := make(map[string]bool)
	for _, p := range w.pods() {
		names[p.Labels[v1alpha1.LabelSandboxID]] = true
	}
	if len(names) != 100 || names[""] {
		t.Errorf("%d sandboxes on 100 pods", len(names))
	}
	w.backed(id(0))
	w.backed(id(99))
}

func TestMoreIDsThanPods(t *testing.T) {
	w := newWorld(t)
	w.idle(10)
	gateways := []*gateway{w.gateway(w.c, schedule.WithSeed(1)), w.gateway(w.c, schedule.WithSeed(2))}
	prefix := kubetest.Name("more")
	const patience = 5 * time.Second
	served, late := 0, 0
	var mu sync.Mutex
	for _, err := range together(40, func(i int) error {
		r := w.request(fmt.Sprintf("%s-%d", prefix, i), true, patience)
		err := gateways[i%2].Activate(t.Context(), r)
		if time.Now().After(r.Deadline.Add(time.Second)) {
			mu.Lock()
			late++
			mu.Unlock()
		}
		return err
	}) {
		var again *RetryError
		switch {
		case err == nil:
			served++
		case !errors.Is(err, routing.ErrNoCapacity) || !errors.As(err, &again) || again.RetryAfter() <= 0:
			t.Error(err)
		}
	}
	if served != 10 || late > 0 {
		t.Errorf("%d served by 10 pods, %d answered late", served, late)
	}
	// A request that lost its pod to the other gateway, and found no further one,
	// leaves a sandbox whose binding is being removed.
	kubetest.Eventually(t, "ten bound sandboxes", func() error {
		list := &v1alpha1.SandboxList{}
		if err := w.c.List(t.Context(), list); err != nil {
			return err
		}
		bound := 0
		for _, s := range list.Items {
			if s.Spec.Namespace == w.ns && s.Spec.Binding != nil {
				bound++
			}
		}
		if bound != 10 {
			return fmt.Errorf("%d are bound", bound)
		}
		return nil
	})
	for _, p := range w.pods() {
		w.backed(p.Labels[v1alpha1.LabelSandboxID])
	}
}

func TestSandboxWithoutPodIsBound(t *testing.T) {
	w := newWorld(t)
	w.idle(1)
	g := w.gateway(w.c)
	id := kubetest.Name("lazy")
	w.make(id, func(s *v1alpha1.SandboxSpec) { s.Network.Private = true })
	g.fails(t, w.request(id, true, 10*time.Second), routing.ErrExists) // the request must be authorised as one for an existing sandbox
	g.activates(t, w.request(id, false, 10*time.Second))
	pod := w.backed(id)
	if r := g.cache.Get(id); r == nil || !r.Private || r.TokenUID == nil || *r.TokenUID != w.sandbox(id).UID || r.PodUID != string(pod.UID) {
		t.Errorf("route %+v", r)
	}
}

func TestWhatIsNotActivated(t *testing.T) {
	w := newWorld(t)
	w.idle(1)
	g := w.gateway(w.c)
	const patience = 5 * time.Second
	ended := kubetest.Name("ended")
	s := w.make(ended, func(s *v1alpha1.SandboxSpec) { s.FirstRequest = true })
	s.Spec.End = &v1alpha1.End{Reason: v1alpha1.EndReleased, At: s.CreationTimestamp}
	if err := w.c.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	g.fails(t, w.request(ended, true, patience), routing.ErrEnded)
	g.fails(t, w.request(ended, false, patience), routing.ErrEnded)

	other := kubetest.Name("other")
	w.make(other, func(s *v1alpha1.SandboxSpec) { s.Namespace = "elsewhere"; s.FirstRequest = true })
	g.fails(t, w.request(other, true, patience), ErrOtherTenant)
	g.fails(t, w.request(other, false, patience), ErrOtherTenant)

	nowhere := w.request(kubetest.Name("x"), true, patience)
	nowhere.Pool = "none"
	g.fails(t, nowhere, routing.ErrPoolNotFound)
	g.activates(t, w.request(kubetest.Name("gone"), false, patience)) // succeeds: the caller resolves again
	for _, p := range w.pods() {
		if v1alpha1.PhaseOf(&p) != v1alpha1.PodIdle {
			t.Errorf("pod %s is %s", p.Name, v1alpha1.PhaseOf(&p))
		}
	}
}
