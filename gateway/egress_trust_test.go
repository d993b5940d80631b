package gateway

import (
	"slices"
	"testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
	egresskeys "github.com/sandlane/sandlane/egress/keys"
	"github.com/sandlane/sandlane/gateway/restapi"
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
