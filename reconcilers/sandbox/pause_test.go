package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
)

// stubPauseEnforcer answers what it is told to.
type stubPauseEnforcer struct {
	answer error
	asked  []controlplane.EnforcePause
}

func (q *stubPauseEnforcer) EnforcePause(_ context.Context, o controlplane.EnforcePause) error {
	q.asked = append(q.asked, o)
	return q.answer
}

// spec changes the sandbox's spec, as the API server would.
func (g *rig) spec(t *testing.T, change func(*v1alpha1.SandboxSpec)) {
	t.Helper()
	s := g.sandbox(t)
	paused, mode := s.Spec.Paused, s.Spec.PauseMode
	change(&s.Spec)
	if s.Generation++; s.Spec.Paused != paused || s.Spec.PauseMode != mode {
		s.Spec.PauseOrder++
	}
	if err := g.Client.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// pausable is a rig with a sandbox that runs, and its freezer.
func pausable(t *testing.T) (*rig, *stubPauseEnforcer) {
	t.Helper()
	s, pod := bound()
	s.UID, s.Generation, s.Finalizers = "s-uid", 1, []string{v1alpha1.FinalizerSandbox}
	had(s, "c")
	g, q := newRig(t, s, pod), &stubPauseEnforcer{}
	g.orders.pauseEnforcer = q
	g.settle(t)
	return g, q
}

// settle looks until nothing has to be asked any more, and returns when to look again.
func (g *rig) settle(t *testing.T) (wait time.Duration) {
	t.Helper()
	for range 2 {
		wait = g.look(t)
		g.orders.tries.Wait()
	}
	return wait
}

func (g *rig) want(t *testing.T, what string, phase v1alpha1.SandboxPhase, status metav1.ConditionStatus, reason string) *v1alpha1.Sandbox {
	t.Helper()
	s := g.sandbox(t)
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SandboxConditionPaused)
	ready := meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.SandboxConditionReady)
	if s.Status.Phase != phase || c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != s.Generation || ready != (phase == v1alpha1.SandboxRunning) {
		t.Errorf("%s: phase %s, %+v, ready %v", what, s.Status.Phase, c, ready)
	}
	return s
}

func paused(s *v1alpha1.SandboxSpec) {
	s.Paused, s.PauseMode, s.Timeouts.EndAt = true, v1alpha1.PauseFreeze, nil
}

// A sandbox is Paused and runs again only when its freezer says so, for the pause
// or resume that was asked for; what changes while it is known to run leaves it Running.
func TestPauseStatus(t *testing.T) {
	g, q := pausable(t)
	q.answer = errors.New("deaf")
	g.spec(t, paused)
	wait := g.settle(t)
	s := g.want(t, "not answered", v1alpha1.SandboxPausing, metav1.ConditionFalse, v1alpha1.ReasonFreezing)
	if len(q.asked) != 1 || wait != enforcePauseWait || s.Status.Pause.Since.IsZero() {
		t.Errorf("asked %d times, look again in %s, %+v", len(q.asked), wait, s.Status.Pause)
	}
	g.clock.SetTime(now.Add(enforcePauseWait))
	q.answer = nil
	g.settle(t)
	s = g.want(t, "frozen", v1alpha1.SandboxPaused, metav1.ConditionTrue, v1alpha1.ReasonFrozen)
	if !s.Status.Pause.Since.Time.Equal(now) || !s.Status.Pause.Stopped {
		t.Errorf("%+v", s.Status.Pause)
	}
	if g.settle(t); len(q.asked) != 2 {
		t.Errorf("asked %d times", len(q.asked))
	}
	q.answer = errors.New("deaf")
	g.spec(t, func(s *v1alpha1.SandboxSpec) { s.Paused = false })
	g.settle(t)
	g.want(t, "resume not answered", v1alpha1.SandboxResuming, metav1.ConditionUnknown, v1alpha1.ReasonResuming)
	resumed := now.Add(time.Minute)
	g.clock.SetTime(resumed)
	q.answer = nil
	g.settle(t)
	s = g.want(t, "resumed", v1alpha1.SandboxRunning, metav1.ConditionFalse, v1alpha1.ReasonResumed)
	if !s.Status.Pause.Since.Time.Equal(resumed) || s.Status.Pause.Stopped {
		t.Errorf("resumed at %v", s.Status.Pause.Since)
	}
	g.clock.SetTime(resumed.Add(time.Minute))
	written := len(g.written)
	g.spec(t, func(s *v1alpha1.SandboxSpec) { s.Metadata = map[string]string{"a": "b"} })
	g.settle(t)
	s = g.want(t, "another change", v1alpha1.SandboxRunning, metav1.ConditionFalse, v1alpha1.ReasonResumed)
	if !s.Status.Pause.Since.Time.Equal(resumed) || slices.ContainsFunc(g.written[written:], func(p v1alpha1.SandboxPhase) bool { return p != v1alpha1.SandboxRunning }) {
		t.Errorf("resumed at %v; the phases were %v", s.Status.Pause.Since, g.written[written:])
	}
	for i, o := range q.asked {
		if want := (controlplane.EnforcePause{SandboxID: "s", ClaimID: "c", Freeze: o.Order == 1, Order: o.Order}); o != want {
			t.Errorf("%d: asked %+v", i, o)
		}
	}
}

// The longest life counts from the resume, also if pause and resume both come before the
// controller's look; a later change of the spec does not lengthen it.
func TestResumeOfAPauseThatWasNotSeen(t *testing.T) {
	g, _ := pausable(t)
	resumed := now.Add(time.Minute)
	g.clock.SetTime(resumed)
	g.spec(t, func(s *v1alpha1.SandboxSpec) { s.PauseMode = v1alpha1.PauseFreeze })
	for i, what := range []string{"resumed", "another end"} {
		g.clock.SetTime(resumed.Add(time.Duration(i) * time.Minute))
		g.settle(t)
		s := g.want(t, what, v1alpha1.SandboxRunning, metav1.ConditionFalse, v1alpha1.ReasonResumed)
		if !s.Status.Pause.Since.Time.Equal(resumed) || s.Status.Pause.Stopped {
			t.Errorf("%s: resumed at %v", what, s.Status.Pause.Since)
		}
		g.spec(t, func(s *v1alpha1.SandboxSpec) { s.Timeouts.EndAt = new(metav1.NewTime(resumed.Add(time.Hour))) })
	}
}

// What was paused and cannot be frozen is asked once; it goes on then, or ends if its
// timeout paused it: nothing else would end it, and no request reach it.
func TestPauseWithoutFreezer(t *testing.T) {
	for what, c := range map[string]struct {
		spec  func(*v1alpha1.SandboxSpec)
		ends  v1alpha1.EndReason
		endAt bool
	}{
		"asked":                 {func(*v1alpha1.SandboxSpec) {}, "", false},
		"asked of the REST API": {func(s *v1alpha1.SandboxSpec) { s.Team = "t" }, "", true},
		"by its end time":       {func(s *v1alpha1.SandboxSpec) { s.Timeouts.OnTimeout = v1alpha1.TimeoutPause }, v1alpha1.EndEndAt, false},
		"by its end time, of the REST API": {func(s *v1alpha1.SandboxSpec) {
			s.Team, s.Timeouts.OnTimeout, s.Timeouts.Idle = "t", v1alpha1.TimeoutPause, &metav1.Duration{Duration: time.Hour}
		}, v1alpha1.EndEndAt, false},
		"for idleness": {func(s *v1alpha1.SandboxSpec) {
			s.Timeouts.OnTimeout, s.Timeouts.Idle = v1alpha1.TimeoutPause, &metav1.Duration{Duration: time.Hour}
		}, v1alpha1.EndIdleTimeout, false},
	} {
		g, q := pausable(t)
		q.answer = controlplane.ErrNoFreezer
		g.clock.SetTime(now.Add(time.Second / 2)) // an end time has whole seconds
		g.spec(t, func(s *v1alpha1.SandboxSpec) { paused(s); c.spec(s) })
		if wait := g.settle(t); wait != retrySoon {
			t.Errorf("%s: looks again in %s", what, wait)
		}
		g.want(t, what, v1alpha1.SandboxPausing, metav1.ConditionFalse, v1alpha1.ReasonNoFreezer)
		g.look(t)
		s := g.sandbox(t)
		if len(q.asked) != 1 || s.Spec.Paused != (c.ends != "") || (s.Spec.End != nil) != (c.ends != "") || (s.Spec.Timeouts.EndAt != nil) != c.endAt {
			t.Errorf("%s: asked %d times, %+v", what, len(q.asked), s.Spec)
		}
		if end := s.Spec.Timeouts.EndAt; end != nil && end.Sub(g.clock.Now()) < v1alpha1.AutoLifetime(s) {
			t.Errorf("%s: it ends %v after it runs again", what, end.Sub(g.clock.Now()))
		}
		if s.Spec.End != nil && s.Spec.End.Reason != c.ends {
			t.Errorf("%s: ends as %+v", what, s.Spec.End)
		}
		if c.ends == "" {
			g.spec(t, func(*v1alpha1.SandboxSpec) {}) // the API server counts the change
			g.settle(t)
			g.want(t, what, v1alpha1.SandboxRunning, metav1.ConditionFalse, v1alpha1.ReasonResumed)
		}
	}
}

// A pause at a timeout that the freezer fails to carry out for a minute ends the sandbox;
// one that was asked for is tried again for as long as it takes, and so is either while
// no gateway answers.
func TestPauseThatKeepsFailing(t *testing.T) {
	notDone := fmt.Errorf("%w: deaf", controlplane.ErrNotDone)
	for what, c := range map[string]struct {
		onTimeout v1alpha1.TimeoutAction
		answer    error
		ends      bool
	}{
		"at a timeout":                      {v1alpha1.TimeoutPause, notDone, true},
		"asked":                             {"", notDone, false},
		"at a timeout, no gateway is there": {v1alpha1.TimeoutPause, errors.New("no gateway"), false},
	} {
		g, q := pausable(t)
		q.answer = c.answer
		g.spec(t, func(s *v1alpha1.SandboxSpec) { paused(s); s.Timeouts.OnTimeout = c.onTimeout })
		g.settle(t)
		for _, at := range []time.Duration{enforcePauseWait, enforcePausePatience - time.Second} {
			g.clock.SetTime(now.Add(at))
			g.settle(t)
			g.want(t, what, v1alpha1.SandboxPausing, metav1.ConditionFalse, v1alpha1.ReasonFreezing)
		}
		for range 2 {
			g.clock.SetTime(g.clock.Now().Add(enforcePausePatience))
			g.settle(t)
		}
		g.look(t)
		if s := g.sandbox(t); (s.Spec.End != nil) != c.ends || !s.Spec.Paused {
			t.Errorf("%s: %+v", what, s.Spec)
		}
	}
}

// At its end time a sandbox that runs is paused instead, if it asks for that and its pod
// can be frozen; the pause takes the end time away.
func TestPausedAtItsEndTime(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*v1alpha1.Sandbox, *corev1.Pod)
		paused bool
	}{
		"asks for it": {func(*v1alpha1.Sandbox, *corev1.Pod) {}, true},
		"does not":    {func(s *v1alpha1.Sandbox, _ *corev1.Pod) { s.Spec.Timeouts.OnTimeout = v1alpha1.TimeoutKill }, false},
		"its resume is not confirmed": {func(s *v1alpha1.Sandbox, _ *corev1.Pod) {
			s.Spec.PauseMode, s.Status.Phase = v1alpha1.PauseFreeze, v1alpha1.SandboxPaused
		}, true},
		"its pod starts":         {func(_ *v1alpha1.Sandbox, pod *corev1.Pod) { setPhase(pod, v1alpha1.PodStarting) }, false},
		"its pod has no freezer": {func(_ *v1alpha1.Sandbox, pod *corev1.Pod) { pod.Spec.Containers[0].Ports = nil }, false},
	} {
		s, pod, _ := dueForPause(1)
		c.change(s, pod)
		g := newRig(t, s, pod)
		g.orders.pauseEnforcer = &stubPauseEnforcer{}
		g.look(t)
		got := g.sandbox(t)
		if got.Spec.Paused != c.paused || (got.Spec.End == nil) != c.paused || (got.Spec.Timeouts.EndAt == nil) != c.paused || (got.Spec.PauseMode != "") != c.paused {
			t.Errorf("%s: %+v", what, got.Spec)
		}
		g.orders.tries.Wait()
	}
}

// Paused time uses no timeout, and a paused sandbox whose pod is gone has failed: its
// binding, which nothing replaces, is not taken off.
func TestDecidePaused(t *testing.T) {
	at := metav1.NewTime(now.Add(-time.Hour))
	for what, c := range map[string]struct {
		change func(*view)
		want   decision
	}{
		"its end time has come": {func(v *view) { v.sandbox.Spec.Timeouts.EndAt = &at }, decision{phase: v1alpha1.SandboxPausing}},
		"its pod went": {func(v *view) { v.pod, v.confirmed = nil, true },
			failed("PausedPodLost: its pod pod is gone")},
		"its pod is deleted": {func(v *view) { v.pod.DeletionTimestamp = &at },
			failed("PausedPodLost: its pod pod was deleted")},
		"its pod has failed": {func(v *view) {
			v.pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodFailed)
			v.pod.Annotations[v1alpha1.AnnotationFailureMessage] = "it was evicted"
		}, failed("PausedPodLost: it was evicted")},
		"its pod never ran": {func(v *view) {
			v.sandbox.Status, v.pod, v.confirmed, v.unclaimedFor = v1alpha1.SandboxStatus{}, nil, true, time.Hour
		}, failed("PausedPodLost: its pod pod never ran, or is gone, and it is paused")},
	} {
		s, pod := bound()
		had(s, "c")
		paused(&s.Spec)
		v := view{sandbox: s, pod: pod, grace: time.Second}
		c.change(&v)
		if got := decide(v, now); got != c.want {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

// A sandbox that was paused for as long as it may be ends; how long that is, it says, or
// its pool, at the time of the look. What is on record of a pause before does not count.
func TestPausedForTooLong(t *testing.T) {
	hour, week := metav1.Duration{Duration: time.Hour}, metav1.Duration{Duration: 7 * 24 * time.Hour}
	for what, c := range map[string]struct {
		sandbox, pool *metav1.Duration
		after         time.Duration
		ends          bool
	}{
		"a day":                {nil, nil, 24 * time.Hour, true},
		"less":                 {nil, nil, 24*time.Hour - time.Second, false},
		"the pool's":           {nil, &hour, time.Hour, true},
		"the sandbox's, short": {&hour, &week, time.Hour, true},
		"the sandbox's, long":  {&week, &hour, 6 * 24 * time.Hour, false},
		"for ever":             {&metav1.Duration{}, &hour, 1000 * time.Hour, false},
	} {
		g, _ := pausable(t)
		pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
		pool.Spec.Pause = &v1alpha1.PoolPause{PausedFor: c.pool}
		if err := g.Client.Create(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		g.spec(t, func(s *v1alpha1.SandboxSpec) { paused(s); s.Timeouts.PausedFor = c.sandbox })
		g.settle(t)
		g.clock.SetTime(now.Add(c.after))
		wait := g.look(t)
		end := g.sandbox(t).Spec.End
		if (end != nil) != c.ends || end != nil && end.Reason != v1alpha1.EndPauseTimeout || end == nil && c.sandbox == nil && (wait <= 0 || wait > maxPausedRecheck) {
			t.Errorf("%s: the end is %+v; it looks again in %s", what, end, wait)
		}
	}
	// What its pool says only now counts too, also for what hibernates.
	for what, spec := range map[string]func(*v1alpha1.SandboxSpec){"frozen": paused, "hibernating": hibernated} {
		g, _ := pausable(t)
		pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
		pool.Spec.Pause = &v1alpha1.PoolPause{PausedFor: &metav1.Duration{}}
		if what == "hibernating" {
			pool.Spec.Pause = nil
		}
		if err := g.Client.Create(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		g.spec(t, spec)
		g.step(t)
		g.settle(t)
		g.clock.SetTime(now.Add(1000 * time.Hour))
		wait := g.look(t)
		if s := g.sandbox(t); wait != maxPausedRecheck || s.Spec.End != nil {
			t.Errorf("%s for ever: the end is %+v; it looks again in %s", what, s.Spec.End, wait)
		}
		pool.Spec.Pause = &v1alpha1.PoolPause{PausedFor: &hour}
		if err := g.Client.Update(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		g.look(t)
		if end := g.sandbox(t).Spec.End; end == nil || end.Reason != v1alpha1.EndPauseTimeout {
			t.Errorf("%s for an hour: the end is %+v", what, end)
		}
	}
	for what, again := range map[string][]func(*v1alpha1.SandboxSpec){"frozen": {paused}, "hibernating": {paused, hibernated}} {
		g, _ := pausable(t)
		pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
		pool.Spec.Pause = &v1alpha1.PoolPause{PausedFor: &metav1.Duration{Duration: 24 * time.Hour}}
		if err := g.Client.Create(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		g.spec(t, paused)
		g.settle(t)
		g.clock.SetTime(now.Add(23 * time.Hour))
		g.spec(t, func(s *v1alpha1.SandboxSpec) { s.Paused = false }) // and is not looked at
		for _, write := range again {
			g.spec(t, write)
		}
		g.step(t)
		g.settle(t)
		g.clock.SetTime(now.Add(25 * time.Hour))
		if g.look(t); g.sandbox(t).Spec.End != nil {
			t.Errorf("%s: one that was paused anew ends by the time of its first pause", what)
		}
	}
}
