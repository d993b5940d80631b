package activation

import (
	"errors"
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/test/kubetest"
)

// A request that waits for a pod, and there is none left, is answered when its
// sandbox turns out to run: another gateway took the last pod for it. The index
// may have seen that while the request waits, or just before it came.
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

// One that waits for a pod hears at once that its sandbox has ended.
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
	if err := <-done; !errors.Is(err, ErrEnded) {
		t.Errorf("%v, want ErrEnded", err)
	}
}
