package activation

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// bindTo makes a first-request sandbox whose owner died after binding it.
func (w *world) bindTo(id string, b v1alpha1.Binding) {
	w.make(id, func(s *v1alpha1.SandboxSpec) { s.FirstRequest, s.Binding = true, &b })
}

func TestFollowerClaimsForADeadOwner(t *testing.T) {
	w := newWorld(t)
	w.idle(1)
	pod := w.pods()[0]
	id := kubetest.Name("dead")
	w.bindTo(id, v1alpha1.Binding{ClaimID: "c1", PodName: pod.Name, PodUID: string(pod.UID)})
	g := w.gateway(w.c)
	start := time.Now()
	g.activates(t, w.request(id, false, 10*time.Second))
	if d := time.Since(start); d < followAfter {
		t.Errorf("the follower claimed after %v, while it was the owner's turn", d)
	}
	if s := w.sandbox(id); s.Spec.Binding.ClaimID != "c1" || w.backed(id).Name != pod.Name {
		t.Errorf("binding %+v", s.Spec.Binding)
	}
	if g.cache.Get(id) == nil {
		t.Error("no route")
	}
}

func TestFollowerReplacesALostPod(t *testing.T) {
	for name, lose := range map[string]func(*world, *corev1.Pod) v1alpha1.Binding{
		"gone": func(*world, *corev1.Pod) v1alpha1.Binding {
			return v1alpha1.Binding{ClaimID: "c1", PodName: "none", PodUID: "none"}
		},
		"another's": func(w *world, pod *corev1.Pod) v1alpha1.Binding {
			claim := schedule.Claim{
				SandboxID: "x", ClaimID: "c9", Namespace: w.ns, PodName: pod.Name, PodUID: pod.UID, Phase: v1alpha1.PodRunning,
			}
			if _, err := schedule.ApplyClaim(w.t.Context(), w.c, claim); err != nil {
				w.t.Fatal(err)
			}
			return v1alpha1.Binding{ClaimID: "c1", PodName: pod.Name, PodUID: string(pod.UID)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.idle(2)
			id := kubetest.Name("lost")
			w.bindTo(id, lose(w, &w.pods()[0]))
			g := w.gateway(w.c)
			g.activates(t, w.request(id, false, 10*time.Second))
			w.backed(id)
			if s := w.sandbox(id); s.Spec.Binding.ClaimID == "c1" {
				t.Errorf("binding %+v", s.Spec.Binding)
			}
		})
	}
}

func TestStartingPodIsAwaited(t *testing.T) {
	w := newWorld(t)
	w.idle(1)
	g, reg := w.gateway(w.c), prometheus.NewRegistry()
	g.o.Metrics = NewMetrics(reg)
	id := kubetest.Name("image")
	w.make(id, func(s *v1alpha1.SandboxSpec) { s.Images = map[string]string{"main": "other"} })
	done := make(chan error, 1)
	go func() { done <- g.Activate(t.Context(), w.request(id, false, 20*time.Second)) }()
	kubetest.Eventually(t, "the pod to start", func() error {
		if p := w.pods()[0]; v1alpha1.PhaseOf(&p) != v1alpha1.PodStarting || p.Spec.Containers[0].Image != "other" {
			return fmt.Errorf("it is %s with image %s", v1alpha1.PhaseOf(&p), p.Spec.Containers[0].Image)
		}
		return nil
	})
	select {
	case err := <-done:
		t.Fatalf("activated before the pod ran: %v", err)
	default:
	}
	pod := w.backed(id)
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, v1alpha1.LabelPhase, v1alpha1.PodRunning)
	if err := w.c.Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if r := g.cache.Get(id); r == nil || fmt.Sprint(r.PodRV) != pod.ResourceVersion {
		t.Errorf("route %+v", r)
	}
	wantPhases(t, reg, map[string]uint64{phaseQueue: 1, phaseCreate: 1, phasePatch: 1, phaseReady: 1})
}

func TestLeavingUndoesNothing(t *testing.T) {
	w := newWorld(t)
	g := w.gateway(w.c)
	id := kubetest.Name("left")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- g.Activate(ctx, w.request(id, true, 20*time.Second)) }()
	g.parks(t)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	w.idle(1)
	kubetest.Eventually(t, "the claim of the request that left", func() error {
		if p := w.pods()[0]; v1alpha1.PhaseOf(&p) != v1alpha1.PodRunning {
			return fmt.Errorf("the pod is %s", v1alpha1.PhaseOf(&p))
		}
		return nil
	})
	w.backed(id)
}

func TestShutdownEndsParking(t *testing.T) {
	w := newWorld(t)
	g := w.gateway(w.c)
	done := make(chan error)
	go func() { done <- g.Activate(t.Context(), w.request(kubetest.Name("a"), true, time.Minute)) }()
	g.parks(t)
	g.Shutdown()
	if err := <-done; !errors.Is(err, routing.ErrDraining) {
		t.Errorf("got %v", err)
	}
	g.fails(t, w.request(kubetest.Name("c"), true, time.Minute), routing.ErrDraining)
}

func TestLaterRequestsHaveTheirOwnTime(t *testing.T) {
	w := newWorld(t)
	g := w.gateway(w.c)
	id := kubetest.Name("slow")
	done := make(chan error)
	go func() { done <- g.Activate(t.Context(), w.request(id, true, 300*time.Millisecond)) }()
	go func() { done <- g.Activate(t.Context(), w.request(id, true, 30*time.Second)) }()
	if err := <-done; !errors.Is(err, routing.ErrNoCapacity) {
		t.Errorf("the short one: %v", err)
	}
	w.idle(1)
	if err := <-done; err != nil {
		t.Errorf("the long one: %v", err)
	}
}

func TestRefusedPutIsNoError(t *testing.T) {
	w := newWorld(t)
	w.idle(1)
	id := kubetest.Name("moved")
	var g *gateway
	g = w.gateway(faulty(w.c, func(o client.Object, call func() error) error {
		if _, pod := o.(*corev1.Pod); pod { // after the binding was written
			g.cache.Invalidate(id)
		}
		return call()
	}))
	g.activates(t, w.request(id, true, 10*time.Second))
	if r := g.cache.Get(id); r != nil {
		t.Errorf("route %+v", r)
	}
	w.backed(id)
}

// Another sandbox of the same stripe of the cache may end while a request waits for a pod:
// the cache still takes the request's route.
func TestEndsWhileWaitingForAPod(t *testing.T) {
	for _, isNew := range []bool{true, false} {
		t.Run(fmt.Sprintf("new=%v", isNew), func(t *testing.T) {
			w := newWorld(t)
			g := w.gateway(w.c)
			id := kubetest.Name("queued")
			if !isNew {
				w.make(id, func(*v1alpha1.SandboxSpec) {})
			}
			done := make(chan error, 1)
			go func() { done <- g.Activate(t.Context(), w.request(id, isNew, 20*time.Second)) }()
			g.queues(t, id)
			g.cache.Invalidate(id)
			w.idle(1)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if g.cache.Get(id) == nil {
				t.Error("no route")
			}
		})
	}
}

// A sandbox never names a stopping pod: its reconciler would end it.
func TestFollowerReplacesAPodWithAnotherAddress(t *testing.T) {
	w := newWorld(t)
	w.idle(2)
	bad := w.pods()[0]
	bad.Status.PodIP, bad.Status.PodIPs = "10.9.9.9", []corev1.PodIP{{IP: "10.9.9.9"}}
	if err := w.c.Status().Update(t.Context(), &bad); err != nil {
		t.Fatal(err)
	}
	id := kubetest.Name("moved")
	w.bindTo(id, v1alpha1.Binding{ClaimID: "c1", PodName: bad.Name, PodUID: string(bad.UID)})
	var bound atomic.Bool
	g := w.gateway(faulty(w.c, func(o client.Object, call func() error) error {
		// Writes to the bad pod are the claim and, last, the stop.
		if _, pod := o.(*corev1.Pod); pod && o.GetName() == bad.Name && w.claimed(bad.Name) && !bound.Load() {
			if s := w.sandbox(id); s.Spec.Binding == nil || s.Spec.Binding.PodName == bad.Name {
				t.Errorf("the pod is to be stopped while the sandbox names it")
			}
			bound.Store(true)
		}
		return call()
	}))
	g.activates(t, w.request(id, false, 10*time.Second))
	if pod := w.backed(id); pod.Name == bad.Name {
		t.Errorf("backed by %s", pod.Name)
	}
	for _, p := range w.pods() {
		if p.Name == bad.Name && v1alpha1.PhaseOf(&p) != v1alpha1.PodStopping {
			t.Errorf("the pod with the other address is %s", v1alpha1.PhaseOf(&p))
		}
	}
}

func TestRequestThatMayNotClaimOnlyFollows(t *testing.T) {
	const patience = 20 * time.Second
	follow := func(w *world, id string) routing.Request {
		r := w.request(id, false, patience)
		r.MayClaim = false
		return r
	}
	t.Run("no binding", func(t *testing.T) {
		w := newWorld(t)
		w.idle(1)
		g := w.gateway(w.c)
		id := kubetest.Name("lazy")
		w.make(id, func(*v1alpha1.SandboxSpec) {})
		g.fails(t, follow(w, id), routing.ErrExists)
		if s := w.sandbox(id); s.Spec.Binding != nil {
			t.Errorf("binding %+v", s.Spec.Binding)
		}
	})
	t.Run("pod lost", func(t *testing.T) {
		w := newWorld(t)
		w.idle(1)
		g := w.gateway(w.c)
		id := kubetest.Name("lost")
		w.bindTo(id, v1alpha1.Binding{ClaimID: "c1", PodName: "none", PodUID: "none"})
		g.fails(t, follow(w, id), routing.ErrExists)
		if s := w.sandbox(id); s.Spec.Binding.ClaimID != "c1" {
			t.Errorf("binding %+v", s.Spec.Binding)
		}
	})
	t.Run("bound", func(t *testing.T) { // completes the claim, which its owner was allowed to begin
		w := newWorld(t)
		w.idle(1)
		g := w.gateway(w.c)
		pod := w.pods()[0]
		id := kubetest.Name("bound")
		w.bindTo(id, v1alpha1.Binding{ClaimID: "c1", PodName: pod.Name, PodUID: string(pod.UID)})
		g.activates(t, follow(w, id))
		w.backed(id)
	})
	t.Run("beside a request that may", func(t *testing.T) {
		w := newWorld(t)
		g := w.gateway(w.c)
		id := kubetest.Name("both")
		w.make(id, func(*v1alpha1.SandboxSpec) {})
		done := make(chan error, 1)
		go func() { done <- g.Activate(t.Context(), w.request(id, false, patience)) }()
		g.queues(t, id)
		start := time.Now()
		g.fails(t, follow(w, id), routing.ErrExists) // does not wait for the pod of the request that may
		if d := time.Since(start); d > patience/2 {
			t.Errorf("took %v", d)
		}
		w.idle(1)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Run("a request that may beside it", func(t *testing.T) { // does not wait for the other's activation
		w := newWorld(t)
		w.idle(1)
		g := w.gateway(w.c)
		id := kubetest.Name("both")
		w.bindTo(id, v1alpha1.Binding{ClaimID: "c1", PodName: "none", PodUID: "none"})
		done := make(chan error, 1)
		go func() { done <- g.Activate(t.Context(), follow(w, id)) }()
		g.parks(t)
		g.activates(t, w.request(id, false, patience))
		w.backed(id)
		if err := <-done; err != nil && !errors.Is(err, routing.ErrExists) {
			t.Error(err)
		}
	})
}
