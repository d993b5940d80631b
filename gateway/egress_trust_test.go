package gateway

import (
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	egresskeys "github.com/sandlane/sandlane/egress/keys"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/test/kubetest"
)

// A sandbox that runs trusts egress once an update gives it rules; where it cannot be told, the
// update fails.
func TestLateRulesAreTrusted(t *testing.T) {
	w := newWorld(t)
	g := w.gateway()
	w.pool("named", v1alpha1.SandboxdPort, func(p *v1alpha1.SandboxPool) { p.Spec.Egress = v1alpha1.EgressByName })
	if _, err := egresskeys.Load(t.Context(), w.c, w.ns); err != nil {
		t.Fatal(err)
	}
	public, err := egresskeys.ReadPublic(t.Context(), w.c, w.ns)
	if err != nil {
		t.Fatal(err)
	}
	d := w.sandboxd()
	w.pod("named", d.addr, nil)
	n := w.new(newID())
	n.Pool = "named"
	if _, err := g.create(t, n); err != nil {
		t.Fatal(err)
	}
	e := rules("", "0.0.0.0/0,::/0")
	e.Names = []string{"api.example"}
	set := func() error { return g.api.sandboxes.SetEgress(t.Context(), w.ns, n.ID, e) }
	wantError(t, "names alone", set(), nil)
	trusted := func() []string {
		d.mu.Lock()
		defer d.mu.Unlock()
		return slices.Clone(d.trusted)
	}
	if got := trusted(); len(got) > 0 {
		t.Errorf("without rules it trusts %q", got)
	}
	e.Rules = map[string]map[string]string{"api.example": {"X-Key": "hunter2"}}
	wantError(t, "rules", set(), nil)
	if got := trusted(); len(got) != 1 || got[0] != string(public.Authority) {
		t.Errorf("it trusts %q", got)
	}
	d.status.Store(401)
	wantError(t, "rules that sandboxd is not told", set(), restapi.ErrUnanswered)
}

// Rules that a sandbox gets while it is paused are those that it goes on with, and its programs
// trust egress then: a frozen one's sandboxd is told at once, that of a hibernated one's next
// pod as it is initialised.
func TestRulesOfAPausedSandboxAreTrusted(t *testing.T) {
	for _, memory := range []bool{true, false} {
		w := newResting(t, 1, nil)
		if _, err := egresskeys.Load(t.Context(), w.c, w.ns); err != nil {
			t.Fatal(err)
		}
		public, err := egresskeys.ReadPublic(t.Context(), w.c, w.ns)
		if err != nil {
			t.Fatal(err)
		}
		pool := &v1alpha1.SandboxPool{}
		if err := w.c.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "resting"}, pool); err != nil {
			t.Fatal(err)
		}
		pool.Spec.Egress = v1alpha1.EgressByName
		if err := w.c.Update(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		x := w.gateways[0].api.sandboxes
		if err := x.Pause(t.Context(), w.ns, w.id, memory); err != nil {
			t.Fatal(err)
		}
		e := rules("", "0.0.0.0/0,::/0")
		e.Names, e.Rules = []string{"api.example"}, map[string]map[string]string{"api.example": {"X-Key": "hunter2"}}
		kubetest.Eventually(t, "the gateway to see the pool", func() error { return x.SetEgress(t.Context(), w.ns, w.id, e) })
		trusts := func() (all []string) {
			d := w.first
			if !memory {
				d = w.next("sha256:1")
			}
			if _, resumed, err := x.Resume(t.Context(), w.ns, w.id, time.Minute); err != nil || !resumed {
				t.Fatalf("resume: %v, %v", resumed, err)
			}
			for _, init := range d.calls() {
				all = append(all, init.CA)
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			return append(all, d.trusted...)
		}()
		if !slices.Contains(trusts, string(public.Authority)) {
			t.Errorf("resumed with its memory: %t, it trusts %q", memory, trusts)
		}
		if is := w.sandbox(w.id).Spec.Egress; is == nil || !slices.Equal(is.AllowNames, e.Names) || len(is.Rules) != 1 {
			t.Errorf("resumed with its memory: %t, its rules are %+v", memory, is)
		}
	}
}
