package sandbox

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A fence that is over before the cache shows its claim's pod has not stopped that: it is
// stopped when it is seen, and its address fenced anew.
func TestAFencedClaimsPodIsStopped(t *testing.T) {
	g, _ := pausable(t)
	g.Ledger.NoteClaim("c", "s", "10.0.0.1")
	g.Ledger.NoteFenced("c", "10.0.0.1")
	g.spec(t, hibernated)
	g.step(t)
	if phase := v1alpha1.PhaseOf(g.pod(t, "pod")); phase != v1alpha1.PodStopping || !slices.Equal(g.asked, []string{"10.0.0.1"}) {
		t.Errorf("the pod is %s, asked %v", phase, g.asked)
	}
	if g.step(t); len(g.asked) != 1 {
		t.Errorf("asked %v", g.asked)
	}
}

// One that ends while the claims that it gave up are not fenced is seen to end, and has ended
// when they are.
func TestEndOfWhatIsNotFenced(t *testing.T) {
	g, _ := pausable(t)
	g.fence = errors.New("a gateway is away")
	g.spec(t, hibernated)
	g.step(t)
	g.spec(t, func(s *v1alpha1.SandboxSpec) {
		s.End = &v1alpha1.End{Reason: v1alpha1.EndReleased, At: metav1.NewTime(now)}
	})
	g.look(t)
	if s := g.sandbox(t); s.Status.Phase != v1alpha1.SandboxEnding || s.Status.FencedAt != nil || s.Status.EndedAt == nil || s.Status.AddressClaim != "c" {
		t.Errorf("not fenced: %+v", s.Status)
	}
	g.fence = nil
	g.clock.SetTime(now.Add(time.Minute))
	g.step(t)
	g.step(t)
	if s := g.sandbox(t); s.Status.Phase != v1alpha1.SandboxEnded || s.Status.FencedAt == nil || !g.Ledger.IsFenced("c") {
		t.Errorf("fenced: %+v", s.Status)
	}
}

// Nothing is kept of the fences of a sandbox that is gone; of one that has ended those of
// former claims are, until the gateways have answered.
func TestFencesOfWhatIsOver(t *testing.T) {
	begun := func(t *testing.T) *rig {
		g, _ := pausable(t)
		g.fence = errors.New("a gateway is away")
		for _, claim := range []string{"", "a"} {
			key := fenceKey{"s", claim}
			g.fences.begin(key, openFence{of: g.sandbox(t).UID, addr: netip.MustParseAddr("10.0.0.9"), rv: 1, onDone: func() { g.fences.forget(key) }})
			g.fences.asks.Wait()
		}
		return g
	}
	nothing := func(g *rig, what string) {
		t.Helper()
		if len(g.fences.open)+len(g.fences.claims) != 0 {
			t.Errorf("%s: left are %v, %v", what, g.fences.open, g.fences.claims)
		}
	}
	gone := begun(t)
	s := gone.sandbox(t)
	s.Finalizers = nil
	for _, err := range []error{gone.Client.Update(t.Context(), s), gone.Client.Delete(t.Context(), s)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	gone.look(t)
	nothing(gone, "it is gone")

	ended := begun(t)
	ended.spec(t, func(s *v1alpha1.SandboxSpec) {
		s.End = &v1alpha1.End{Reason: v1alpha1.EndReleased, At: metav1.NewTime(now)}
	})
	s = ended.sandbox(t)
	s.Status.Phase = v1alpha1.SandboxEnded
	if err := ended.Client.Status().Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if wait := ended.look(t); len(ended.fences.open) != 1 || wait != time.Second {
		t.Errorf("left are %v, it looks again in %s", ended.fences.open, wait)
	}
	ended.fence = nil
	ended.clock.SetTime(now.Add(maxFenceWait))
	ended.step(t)
	nothing(ended, "it has ended, and the gateways have answered")
}
