package activation

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// A request that waits for a pod while none is left is answered when another gateway has
// given the last pod to its sandbox. The index may have seen that while the request waits,
// or just before it came.
func TestSandboxGetsItsPodElsewhere(t *testing.T) {
	for name, while := range map[string]bool{"while it waits": true, "just before": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.idle(1)
			pod := w.pods()[0]
			id := kubetest.Name("elsewhere")
			if _, err := schedule.ApplyClaim(t.Context(), w.c, schedule.Claim{
				SandboxID: id, ClaimID: "c1", Namespace: w.ns, PodName: pod.Name, PodUID: pod.UID, Phase: v1alpha1.PodRunning,
			}); err != nil {
				t.Fatal(err)
			}
			bound := v1alpha1.Binding{ClaimID: "c1", PodName: pod.Name, PodUID: string(pod.UID)}
			if !while {
				w.bindTo(id, bound)
			}
			g := w.gateway(w.c)
			done := make(chan error, 1)
			go func() { done <- g.Activate(t.Context(), w.request(id, true, 20*time.Second)) }()
			g.queues(t, id)
			if while {
				w.bindTo(id, bound)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if r := g.cache.Get(id); r == nil || r.PodUID != string(pod.UID) {
				t.Errorf("route %+v, want the pod that runs it", r)
			}
			w.backed(id)
		})
	}
}

// A request that waits for its turn while the pool has idle pods reads nothing: a burst of
// requests costs the API server no reads.
func TestRequestThatWaitsForItsTurnReadsNothing(t *testing.T) {
	w := newWorld(t)
	const burst = 30 // more than a scheduler claims at a time
	w.idle(burst + 5)
	var reads atomic.Int64
	g := w.gateway(interceptor.NewClient(w.c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			<-time.After(followAfter * 6 / 5) // a slow API server
			return c.Create(ctx, o, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			reads.Add(1)
			return c.Get(ctx, k, o, opts...)
		},
	}))
	for i, err := range together(burst, func(int) error {
		return g.Activate(t.Context(), w.request(kubetest.Name("turn"), true, 30*time.Second))
	}) {
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	if n := reads.Load(); n != 0 {
		t.Errorf("%d reads, want none", n)
	}
}

// A request that waits for a pod fails at once when its sandbox ends.
func TestSandboxEndsWhileWaitingForAPod(t *testing.T) {
	w := newWorld(t)
	g := w.gateway(w.c)
	s := w.make(kubetest.Name("ended"), func(*v1alpha1.SandboxSpec) {})
	done := make(chan error, 1)
	go func() { done <- g.Activate(t.Context(), w.request(s.Name, false, 20*time.Second)) }()
	g.queues(t, s.Name)
	s.Spec.End = &v1alpha1.End{Reason: v1alpha1.EndReleased, At: s.CreationTimestamp}
	if err := w.c.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, routing.ErrEnded) {
		t.Errorf("%v, want ErrEnded", err)
	}
}

// A request that lost its pod and waits for the next one also leaves the queue when another
// process gives its sandbox a pod. The binding that the request itself wrote, to the pod that
// it lost, does not make it leave.
func TestSandboxGetsItsNextPodElsewhere(t *testing.T) {
	w := newWorld(t)
	w.idle(2)
	pods := w.pods()
	other := pods[1]
	id := kubetest.Name("next")
	if _, err := schedule.ApplyClaim(t.Context(), w.c, schedule.Claim{
		SandboxID: id, ClaimID: "c2", Namespace: w.ns, PodName: other.Name, PodUID: other.UID, Phase: v1alpha1.PodRunning,
	}); err != nil {
		t.Fatal(err)
	}
	var claims atomic.Int64
	g := w.gateway(faulty(w.c, func(o client.Object, call func() error) error {
		if _, pod := o.(*corev1.Pod); pod && claims.Add(1) == 1 {
			return errors.New("connection reset by peer") // before it was sent: the pod is stopped
		}
		return call()
	}))
	done := make(chan error, 1)
	go func() { done <- g.Activate(t.Context(), w.request(id, true, 20*time.Second)) }()
	kubetest.Eventually(t, "the first pod to be stopped", func() error {
		p := &corev1.Pod{}
		if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(&pods[0]), p); err != nil {
			return err
		}
		if v1alpha1.PhaseOf(p) != v1alpha1.PodStopping {
			return fmt.Errorf("it is %s", v1alpha1.PhaseOf(p))
		}
		return nil
	})
	g.queues(t, id)
	first := w.sandbox(id).Spec.Binding
	if first == nil || first.PodName != pods[0].Name {
		t.Fatalf("bound to %+v", first)
	}
	s := w.sandbox(id)
	s.Spec.Binding = &v1alpha1.Binding{ClaimID: "c2", PodName: other.Name, PodUID: string(other.UID)}
	if err := w.c.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if r := g.cache.Get(id); r == nil || r.PodUID != string(other.UID) {
		t.Errorf("route %+v, want the pod that runs it", r)
	}
	w.backed(id)
}
