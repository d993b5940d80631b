package sandbox

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
)

// A pod that says nothing at a timeout ends nothing, however long that takes and whatever its
// freezer has refused in between, until the operator's bound: the sandbox stays Pausing and
// says so. It is paused once the pod answers, and a kill ends it at once.
func TestSilenceIsNoEnd(t *testing.T) {
	silent := fmt.Errorf("%w: no route to host", controlplane.ErrUnanswered)
	refused := fmt.Errorf("%w: deaf", controlplane.ErrNotDone)
	pausing := func(mode v1alpha1.PauseMode) (*rig, *stubPauseEnforcer) {
		g, q := pausable(t)
		q.answer = silent
		g.spec(t, func(s *v1alpha1.SandboxSpec) {
			paused(s)
			s.PauseMode, s.Timeouts.OnTimeout, s.Timeouts.PausedFor = mode, v1alpha1.TimeoutPause, &metav1.Duration{} // for ever
		})
		g.settle(t)
		return g, q
	}
	later := func(g *rig, d time.Duration) *v1alpha1.Sandbox {
		t.Helper()
		g.clock.SetTime(g.clock.Now().Add(d))
		g.settle(t)
		g.look(t)
		return g.sandbox(t)
	}
	for _, mode := range []v1alpha1.PauseMode{v1alpha1.PauseFreeze, v1alpha1.PauseHibernate} {
		g, q := pausing(mode)
		for range 40 {
			if s := later(g, time.Minute); s.Spec.End != nil {
				t.Fatalf("%s: silence ended it: %+v", mode, s.Spec.End)
			}
		}
		g.want(t, "silent", v1alpha1.SandboxPausing, metav1.ConditionFalse, v1alpha1.ReasonUnanswered)
		for range 4 { // refusals that are no row
			q.answer = refused
			for range lateRefusals - 1 {
				later(g, maxEnforcePauseWait)
			}
			q.answer = silent
			if s := later(g, maxEnforcePauseWait); s.Spec.End != nil {
				t.Fatalf("%s: refusals with silence between them ended it: %+v", mode, s.Spec.End)
			}
		}
		if mode == v1alpha1.PauseHibernate {
			continue
		}
		q.answer = nil
		later(g, enforcePauseWait)
		g.want(t, "it answers", v1alpha1.SandboxPaused, metav1.ConditionTrue, v1alpha1.ReasonFrozen)
		if s := later(g, 2*DefaultUnknownFor); s.Spec.End != nil {
			t.Errorf("the bound ended one that is paused: %+v", s.Spec.End)
		}
	}

	g, q := pausing(v1alpha1.PauseFreeze)
	q.answer = refused
	for range lateRefusals + 1 {
		later(g, enforcePausePatience/2)
	}
	if s := later(g, time.Second); s.Spec.End == nil || s.Spec.End.Reason != v1alpha1.EndEndAt {
		t.Errorf("a row of refusals: %+v", s.Spec)
	}

	g, _ = pausing(v1alpha1.PauseFreeze)
	if s := later(g, DefaultUnknownFor-time.Second); s.Spec.End != nil {
		t.Errorf("before the bound: %+v", s.Spec.End)
	}
	if s := later(g, maxEnforcePauseWait); s.Spec.End == nil || s.Spec.End.Reason != v1alpha1.EndEndAt {
		t.Errorf("at the first try after the bound: %+v", s.Spec)
	}

	g, q = pausing(v1alpha1.PauseFreeze)
	later(g, 2*time.Minute)
	asked := len(q.asked)
	g.spec(t, func(s *v1alpha1.SandboxSpec) { s.End = &v1alpha1.End{Reason: v1alpha1.EndDeleted} })
	g.look(t)
	if s := later(g, time.Minute); s.Status.Phase == v1alpha1.SandboxPausing || len(q.asked) != asked {
		t.Errorf("killed, it is %s, and was asked %d times more", s.Status.Phase, len(q.asked)-asked)
	}
}

// The time in which no controller ran, or by which its clock jumped, is no silence of the pod:
// the first try of the next controller decides.
func TestTimeWithoutTriesIsNoSilence(t *testing.T) {
	g, q := pausable(t)
	q.answer = fmt.Errorf("%w: no route to host", controlplane.ErrUnanswered)
	g.spec(t, func(s *v1alpha1.SandboxSpec) {
		paused(s)
		s.Timeouts.OnTimeout, s.Timeouts.PausedFor = v1alpha1.TimeoutPause, &metav1.Duration{}
	})
	g.settle(t)
	g.clock.SetTime(g.clock.Now().Add(2 * DefaultUnknownFor))
	g.orders = newFreezerOrders(g.clock, q) // of another process
	g.settle(t)
	g.look(t)
	if s := g.sandbox(t); s.Spec.End != nil {
		t.Errorf("it ended at the first look: %+v", s.Spec.End)
	}
	q.answer = nil
	g.clock.SetTime(g.clock.Now().Add(enforcePauseWait))
	g.settle(t)
	g.want(t, "it answers", v1alpha1.SandboxPaused, metav1.ConditionTrue, v1alpha1.ReasonFrozen)
}
