package sandbox

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/address"
)

// hibernated is what a sandbox is like once its pod is given up.
func hibernated(s *v1alpha1.SandboxSpec) {
	s.Paused, s.PauseMode, s.Timeouts.EndAt, s.Binding = true, v1alpha1.PauseHibernate, nil, nil
	s.Restore = &v1alpha1.Restore{Checkpoint: "cp"}
}

func (g *rig) pod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := g.Client.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: name}, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// What gave its pod up is Paused at once; its pod is stopped, and the address fenced and
// free only then.
func TestHibernated(t *testing.T) {
	g, _ := pausable(t)
	g.Ledger.NoteClaim("c", "s", "10.0.0.1")
	if err := g.Ledger.Load(t.Context(), g.Client); err != nil {
		t.Fatal(err)
	}
	g.fence = errors.New("a gateway is away")
	g.spec(t, hibernated)
	g.step(t)
	s := g.want(t, "not fenced", v1alpha1.SandboxPaused, metav1.ConditionTrue, v1alpha1.ReasonHibernated)
	if s.Status.Pause.Since.IsZero() || s.Status.FencedAt != nil || s.Status.AddressClaim != "c" || g.Ledger.IsFenced("c") {
		t.Errorf("status %+v", s.Status)
	}
	if phase := v1alpha1.PhaseOf(g.pod(t, "pod")); phase != v1alpha1.PodStopping {
		t.Errorf("the pod is %s", phase)
	}
	g.clock.SetTime(now.Add(2 * time.Second))
	g.fence = nil
	g.step(t)
	g.step(t)
	s = g.sandbox(t)
	if s.Status.FencedAt == nil || !g.Ledger.IsFenced("c") || !slices.Equal(g.asked, []string{"10.0.0.1", "10.0.0.1"}) || s.Spec.End != nil {
		t.Errorf("status %+v, asked %v", s.Status, g.asked)
	}
	g.clock.SetTime(now.Add(2*time.Second + address.DefaultCooldown))
	if v := g.Ledger.Free("10.0.0.1"); !v.Free {
		t.Errorf("the address: %+v", v)
	}
	if wait := g.look(t); wait != maxPausedRecheck {
		t.Errorf("it looks again in %s", wait)
	}
}

// The view of a sandbox that hibernates may be older than its new binding: the pod of that
// is not stopped.
func TestAPodThatIsBoundAnewIsNotGivenUp(t *testing.T) {
	g, _ := pausable(t)
	g.spec(t, func(s *v1alpha1.SandboxSpec) {
		s.PauseMode, s.Restore = v1alpha1.PauseHibernate, &v1alpha1.Restore{Checkpoint: "cp"}
	})
	old := g.sandbox(t)
	hibernated(&old.Spec)
	wait, err := g.endFormerClaims(t.Context(), old)
	if phase := v1alpha1.PhaseOf(g.pod(t, "pod")); phase != v1alpha1.PodRunning || err != nil || wait != retrySoon || len(g.asked) != 0 {
		t.Errorf("the pod is %s; again in %s, %v, asked %v", phase, wait, err, g.asked)
	}
}

// claimedAnew makes the pod of the sandbox's next claim.
func (g *rig) claimedAnew(t *testing.T) {
	t.Helper()
	_, next := bound()
	next.Name, next.UID, next.ResourceVersion = "pod2", "u2", ""
	next.Annotations[v1alpha1.AnnotationClaim] = "c2"
	if err := g.Client.Create(t.Context(), next); err != nil {
		t.Fatal(err)
	}
}

// boundAnew is a sandbox that was paused, resumed in another pod and perhaps ended between two
// looks of the controller.
func boundAnew(t *testing.T, restored bool, end *v1alpha1.End) *rig {
	g, _ := pausable(t)
	g.spec(t, func(s *v1alpha1.SandboxSpec) {
		s.PauseMode, s.End = v1alpha1.PauseHibernate, end
		if !restored {
			s.Restore = &v1alpha1.Restore{Checkpoint: "cp"}
		}
		s.Binding = &v1alpha1.Binding{ClaimID: "c2", PodName: "pod2", PodUID: "u2"}
	})
	g.claimedAnew(t)
	return g
}

// A sandbox may be paused, resumed and restored between two looks of the controller: its
// former pod is stopped and fenced at once, and the new one serves on.
func TestFormerPodOfWhatIsBoundAnew(t *testing.T) {
	for _, restored := range []bool{false, true} {
		g := boundAnew(t, restored, nil)
		g.step(t)
		if phase := v1alpha1.PhaseOf(g.pod(t, "pod")); phase != v1alpha1.PodStopping || !g.Ledger.IsFenced("c") {
			t.Errorf("the former pod is %s, its claim fenced: %v", phase, g.Ledger.IsFenced("c"))
		}
		if phase := v1alpha1.PhaseOf(g.pod(t, "pod2")); phase != v1alpha1.PodRunning || g.Ledger.IsFenced("c2") {
			t.Errorf("the new pod is %s", phase)
		}
		g.clock.SetTime(now.Add(address.DefaultCooldown))
		if g.look(t); g.orphanCandidates.has("s") {
			t.Error("it is still a candidate")
		}
	}
}

// The same may happen before the sandbox ends: requests wait in its former pod, which is
// frozen, until that is stopped. Neither of the two pods waits for the other one's fence.
func TestFormerPodOfWhatIsBoundAnewAndEnds(t *testing.T) {
	for _, restored := range []bool{false, true} {
		g := boundAnew(t, restored, &v1alpha1.End{Reason: v1alpha1.EndReleased, At: metav1.NewTime(now)})
		g.step(t)
		for _, name := range []string{"pod", "pod2"} {
			if phase := v1alpha1.PhaseOf(g.pod(t, name)); phase != v1alpha1.PodStopping {
				t.Errorf("restored: %v: %s is %s after one step", restored, name, phase)
			}
		}
		g.settle(t)
		if s := g.sandbox(t); s.Status.Phase != v1alpha1.SandboxEnded || !g.Ledger.IsFenced("c") || !g.Ledger.IsFenced("c2") {
			t.Errorf("restored: %v: %s, claims fenced: %v, %v", restored, s.Status.Phase, g.Ledger.IsFenced("c"), g.Ledger.IsFenced("c2"))
		}
	}
}

// Until its files are restored a sandbox does not run, whatever its pod does, and its
// freezer is not asked.
func TestRestoringStatus(t *testing.T) {
	g, q := pausable(t)
	g.spec(t, func(s *v1alpha1.SandboxSpec) {
		s.PauseMode, s.Restore = v1alpha1.PauseHibernate, &v1alpha1.Restore{Checkpoint: "cp"}
	})
	g.settle(t)
	g.want(t, "restoring", v1alpha1.SandboxResuming, metav1.ConditionUnknown, v1alpha1.ReasonResuming)
	if len(q.asked) != 0 {
		t.Errorf("asked %+v", q.asked)
	}
	g.spec(t, func(s *v1alpha1.SandboxSpec) { s.Restore = nil })
	g.settle(t)
	if s := g.want(t, "restored", v1alpha1.SandboxRunning, metav1.ConditionFalse, v1alpha1.ReasonResumed); s.Status.Pause.Since.IsZero() {
		t.Errorf("status %+v", s.Status)
	}
}

// A claim's fence is not the next one's: after a resume in another pod the address on
// record counts as taken until that is fenced too.
func TestAFenceIsOfOneClaim(t *testing.T) {
	g, _ := pausable(t)
	g.spec(t, hibernated)
	g.step(t)
	g.step(t)
	if g.sandbox(t).Status.FencedAt == nil {
		t.Fatal("the first claim is not fenced")
	}
	_, next := bound()
	next.Name, next.UID, next.ResourceVersion = "pod2", "u2", ""
	next.Annotations[v1alpha1.AnnotationClaim], next.Annotations[v1alpha1.AnnotationAddress], next.Status.PodIP = "c2", "10.0.0.2", "10.0.0.2"
	if err := g.Client.Create(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	g.spec(t, func(s *v1alpha1.SandboxSpec) {
		s.Paused, s.Restore, s.Binding = false, nil, &v1alpha1.Binding{ClaimID: "c2", PodName: "pod2", PodUID: "u2"}
	})
	g.settle(t)
	s := g.sandbox(t)
	if s.Status.Address != "10.0.0.2" || s.Status.AddressClaim != "c2" || s.Status.FencedAt != nil {
		t.Fatalf("status %+v", s.Status)
	}
	asked := len(g.asked)
	g.spec(t, func(s *v1alpha1.SandboxSpec) {
		s.End = &v1alpha1.End{Reason: v1alpha1.EndReleased, At: metav1.NewTime(now)}
	})
	g.step(t)
	s = g.sandbox(t)
	if s.Status.Phase != v1alpha1.SandboxEnded || s.Status.FencedAt == nil || !slices.Equal(g.asked[asked:], []string{"10.0.0.2"}) {
		t.Errorf("status %+v, asked %v", s.Status, g.asked[asked:])
	}
}

// The end of one that hibernates ends the claims that it gave up, too.
func TestEndOfWhatHibernates(t *testing.T) {
	g, _ := pausable(t)
	g.spec(t, func(s *v1alpha1.SandboxSpec) {
		hibernated(s)
		s.End = &v1alpha1.End{Reason: v1alpha1.EndReleased, At: metav1.NewTime(now)}
	})
	g.step(t)
	g.step(t)
	s := g.sandbox(t)
	if s.Status.Phase != v1alpha1.SandboxEnded || s.Status.FencedAt == nil || v1alpha1.PhaseOf(g.pod(t, "pod")) != v1alpha1.PodStopping || !g.Ledger.IsFenced("c") {
		t.Errorf("status %+v, the pod is %s", s.Status, v1alpha1.PhaseOf(g.pod(t, "pod")))
	}
}

// A resume that does not come to its end is taken back, where another sandbox would end:
// what is kept of it is all there is.
func TestDecideRestoring(t *testing.T) {
	at := metav1.NewTime(now.Add(-time.Second))
	back := stepRehibernate
	for what, c := range map[string]struct {
		change func(*view)
		want   step
	}{
		"its pod runs":            {func(*view) {}, stepNone},
		"it has none yet":         {func(v *view) { v.sandbox.Spec.Binding, v.pod = nil, nil }, stepNone},
		"for too long":            {func(v *view) { v.restoringFor = restorePatience }, back},
		"no pod for too long":     {func(v *view) { v.sandbox.Spec.Binding, v.pod, v.restoringFor = nil, nil, restorePatience }, back},
		"its end time has come":   {func(v *view) { v.sandbox.Spec.Timeouts.EndAt = &at }, stepNone},
		"its pod failed":          {func(v *view) { setPhase(v.pod, v1alpha1.PodFailed) }, back},
		"its pod was stopped":     {func(v *view) { setPhase(v.pod, v1alpha1.PodStopping) }, back},
		"its pod went":            {func(v *view) { v.pod, v.confirmed = nil, true }, back},
		"the cache lacks its pod": {func(v *view) { v.pod = nil }, stepConfirm},
		"a first request's":       {func(v *view) { v.sandbox.Spec.FirstRequest, v.podlessFor = true, time.Hour }, stepNone},
		"hibernating":             {func(v *view) { hibernated(&v.sandbox.Spec); v.sandbox.Spec.Timeouts.EndAt, v.pod = &at, nil }, stepNone},
		"a first request's, rests": {func(v *view) {
			hibernated(&v.sandbox.Spec)
			v.sandbox.Spec.FirstRequest, v.pod, v.podlessFor = true, nil, time.Hour
		}, stepNone},
	} {
		s, pod := bound()
		had(s, "c")
		s.Spec.PauseMode, s.Spec.Restore = v1alpha1.PauseHibernate, &v1alpha1.Restore{Checkpoint: "cp"}
		v := view{sandbox: s, pod: pod, grace: time.Second}
		c.change(&v)
		if got := decide(v, now); got.step != c.want {
			t.Errorf("%s: %+v, want %v", what, got, c.want)
		}
	}
	g, _ := pausable(t)
	g.spec(t, func(s *v1alpha1.SandboxSpec) {
		s.PauseMode, s.Restore, s.Timeouts.EndAt = v1alpha1.PauseHibernate, &v1alpha1.Restore{Checkpoint: "cp"}, &at
	})
	g.look(t)
	if s := g.sandbox(t); s.Spec.Binding == nil || s.Spec.Restore == nil || s.Spec.End != nil || !s.Spec.Timeouts.EndAt.Equal(&at) {
		t.Errorf("the spec is %+v", s.Spec)
	}
	pod := g.pod(t, "pod")
	setPhase(pod, v1alpha1.PodFailed)
	if err := g.Client.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	g.look(t)
	if s := g.sandbox(t); !v1alpha1.Hibernated(s) || s.Spec.End != nil || s.Spec.Timeouts.EndAt != nil {
		t.Errorf("its pod failed: the spec is %+v", s.Spec)
	}
}

// A fence that the sandbox's next claim overtakes frees the former claim's address all the
// same; one that fails leaves the claim held, which the sweep finds.
func TestAFenceOutlivesTheNextBinding(t *testing.T) {
	g, _ := pausable(t)
	answer := make(chan error)
	g.fences.attempt = func(context.Context, netip.Addr, uint64, bool) error { return <-answer }
	g.spec(t, hibernated)
	if _, err := g.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "s"}}); err != nil {
		t.Fatal(err)
	}
	g.spec(t, func(s *v1alpha1.SandboxSpec) {
		s.Paused, s.Binding = false, &v1alpha1.Binding{ClaimID: "c2", PodName: "pod2", PodUID: "u2"}
	})
	g.look(t)
	if held := g.Ledger.UnfencedOf("s"); len(held) != 1 || held[0].ClaimID != "c" {
		t.Errorf("held %+v", held)
	}
	answer <- nil
	g.fences.asks.Wait()
	if !g.Ledger.IsFenced("c") {
		t.Error("the former claim is not fenced")
	}
}

// Each resume has its whole time to restore the files, also if this process has not seen
// that the one before was taken back.
func TestEachResumeHasItsOwnTime(t *testing.T) {
	g, _ := pausable(t)
	g.spec(t, func(s *v1alpha1.SandboxSpec) {
		s.PauseMode, s.Restore = v1alpha1.PauseHibernate, &v1alpha1.Restore{Checkpoint: "cp"}
	})
	g.settle(t)
	g.clock.SetTime(now.Add(restorePatience - time.Second))
	g.spec(t, func(s *v1alpha1.SandboxSpec) {
		s.Binding = &v1alpha1.Binding{ClaimID: "c2", PodName: "pod2", PodUID: "u2"}
	})
	g.claimedAnew(t)
	g.settle(t)
	g.clock.SetTime(now.Add(restorePatience + time.Second))
	if g.look(t); !v1alpha1.Restoring(g.sandbox(t)) {
		t.Errorf("two seconds later: %+v", g.sandbox(t).Spec)
	}
	g.clock.SetTime(now.Add(2*restorePatience - time.Second))
	if g.look(t); !v1alpha1.Hibernated(g.sandbox(t)) {
		t.Errorf("in the end: %+v", g.sandbox(t).Spec)
	}
}

// A sandbox that was frozen for as long as its pool lets it be hibernates, where there is
// a store; a resume begins the time anew.
func TestHibernateAfter(t *testing.T) {
	for what, c := range map[string]struct {
		after time.Duration
		store bool
		modes []v1alpha1.PauseMode
		mode  v1alpha1.PauseMode
	}{
		"in time":           {time.Hour, true, []v1alpha1.PauseMode{v1alpha1.PauseFreeze, v1alpha1.PauseHibernate}, v1alpha1.PauseHibernate},
		"not yet":           {time.Hour - time.Second, true, []v1alpha1.PauseMode{v1alpha1.PauseFreeze, v1alpha1.PauseHibernate}, v1alpha1.PauseFreeze},
		"without a store":   {time.Hour, false, []v1alpha1.PauseMode{v1alpha1.PauseFreeze, v1alpha1.PauseHibernate}, v1alpha1.PauseFreeze},
		"it is not allowed": {time.Hour, true, []v1alpha1.PauseMode{v1alpha1.PauseFreeze}, v1alpha1.PauseFreeze},
	} {
		g, _ := pausable(t)
		g.Hibernates = c.store
		pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
		pool.Spec.Pause = &v1alpha1.PoolPause{Modes: c.modes, HibernateAfter: &metav1.Duration{Duration: time.Hour}}
		if err := g.Client.Create(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		g.spec(t, paused)
		g.settle(t)
		g.clock.SetTime(now.Add(c.after))
		wait := g.look(t)
		if s := g.sandbox(t); s.Spec.PauseMode != c.mode || !s.Spec.Paused || s.Spec.Binding == nil || s.Spec.End != nil || what == "not yet" && wait != time.Second {
			t.Errorf("%s: %+v; it looks again in %s", what, s.Spec, wait)
		}
	}
}

// A timeout pauses in the sandbox's mode, if that can be had; else it ends, as without.
func TestTimeoutsModes(t *testing.T) {
	for what, c := range map[string]struct {
		mode  v1alpha1.PauseMode
		store bool
		want  v1alpha1.PauseMode // empty: it ends
	}{
		"none":                   {"", true, v1alpha1.PauseFreeze},
		"freeze":                 {v1alpha1.PauseFreeze, false, v1alpha1.PauseFreeze},
		"hibernate":              {v1alpha1.PauseHibernate, true, v1alpha1.PauseHibernate},
		"hibernate, but nowhere": {v1alpha1.PauseHibernate, false, ""},
	} {
		s, pod := bound()
		at := metav1.NewTime(now.Add(-time.Second))
		s.UID, s.Generation, s.Finalizers = "s-uid", 1, []string{v1alpha1.FinalizerSandbox}
		s.Spec.Timeouts.EndAt, s.Spec.Timeouts.OnTimeout, s.Spec.Timeouts.OnTimeoutMode = &at, v1alpha1.TimeoutPause, c.mode
		pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: v1alpha1.SandboxdPort}}}}
		had(s, "c")
		pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
		pool.Spec.Pause = &v1alpha1.PoolPause{Modes: []v1alpha1.PauseMode{v1alpha1.PauseFreeze, v1alpha1.PauseHibernate}}
		g := newRig(t, s, pod, pool)
		g.orders.pauseEnforcer, g.Hibernates = &stubPauseEnforcer{}, c.store
		g.look(t)
		if got := g.sandbox(t).Spec; got.PauseMode != c.want || got.Paused != (c.want != "") || (got.End == nil) != (c.want != "") {
			t.Errorf("%s: %+v", what, got)
		}
		g.orders.tries.Wait()
	}
}
