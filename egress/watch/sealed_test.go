package watch

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/egress/names"
	"github.com/sandlane/sandlane/egress/seal"
)

// The rules that are sealed for a sandbox are its own alone; what another sandbox's object
// got by a copy, or what cannot be read, lets it connect to nothing.
func TestSealedRules(t *testing.T) {
	private, public, err := seal.NewKey()
	must(t, err)
	opener, err := seal.NewOpener(private)
	must(t, err)
	key, err := seal.ParsePublicKey(public)
	must(t, err)
	sealed := func(place seal.Place, content any) []byte {
		raw, err := json.Marshal(content)
		must(t, err)
		b, err := key.Seal(place, raw)
		must(t, err)
		return b
	}
	rules := map[string]map[string]string{"api.example": {"Authorization": "Bearer k"}}
	s := newState(&told{}, opener.Open, slog.New(slog.DiscardHandler))
	own := seal.OfSandbox("team", "s1")
	for _, c := range []struct {
		what   string
		sealed []byte
		want   string // the header; empty: the host is refused
	}{
		{"its own", sealed(own, rules), "Bearer k"},
		{"another sandbox's", sealed(seal.OfSandbox("team", "s2"), rules), ""},
		{"another namespace's", sealed(seal.OfSandbox("other", "s1"), rules), ""},
		{"cut off", sealed(own, rules)[:20], ""},
		{"gone, while the rule is there", nil, ""},
		{"no rules", sealed(own, "text"), ""},
		{"a rule that no policy has", sealed(own, map[string]map[string]string{"*": {"X": "k"}}), ""},
	} {
		x := sandbox("s1", "c1", "p1")
		x.Spec.Egress = &v1alpha1.SandboxEgress{Sealed: c.sealed, Rules: []v1alpha1.EgressRule{{Host: "api.example"}}}
		d := s.policyOf(x).Decide("api.example")
		got := ""
		if d.Rule != nil {
			got, err = d.Rule.Headers["Authorization"].Fill(nil)
			must(t, err)
		}
		if d.Allowed != (c.want != "") || got != c.want {
			t.Errorf("%s: %+v with %q, want %q", c.what, d, got, c.want)
		}
	}
}

// Blocks decide at which addresses a name may be reached that is not allowed as such.
func TestBlocksOfAName(t *testing.T) {
	s := newState(&told{}, nil, slog.New(slog.DiscardHandler))
	x := sandbox("s1", "c1", "p1")
	x.Spec.Egress = &v1alpha1.SandboxEgress{DenyBlocks: []string{"192.0.2.0/24"}, AllowBlocks: []string{"192.0.2.7/32"}}
	for addr, want := range map[string]bool{"192.0.2.7": true, "192.0.2.8": false, "198.51.100.1": true} {
		if got := s.policyOf(x).Dialled("api.example", netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	x.Spec.Egress.DenyBlocks = []string{"everything"}
	if p := s.policyOf(x); p != denyAll || p.Decide("api.example") != (names.Decision{}) {
		t.Error("a block that cannot be read denies nothing")
	}
}
