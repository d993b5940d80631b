package restapi

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sandlane/sandlane/gateway/restapi/api"
)

func list(texts ...string) *[]string { return &texts }

func TestEgress(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		name        string
		internet    *bool
		allow, deny *[]string
		want        string
	}{
		{"nothing is asked for", nil, nil, nil, "[] []"},
		{"internet", &yes, list(), list(), "[] []"},
		{"only allowed, which all are", nil, list("1.1.1.1"), nil, "[] []"},
		{"an address and blocks", nil, list("10.1.2.3"), list("10.0.0.0/8", "fd00::/8"), "[10.1.2.3/32] [10.0.0.0/8 fd00::/8]"},
		{"bits beyond the length", nil, nil, list("10.1.2.3/8"), "[] [10.0.0.0/8]"},
		{"everything is IPv6 too", nil, list("::1"), list("9.9.9.9", "0.0.0.0/0"), "[::1/128] [0.0.0.0/0 ::/0]"},
		{"no internet", &no, list("8.8.8.8"), nil, "[8.8.8.8/32] [0.0.0.0/0 ::/0]"},
	} {
		e, err := egressOf(c.internet, api.SandboxNetwork{AllowOut: c.allow, DenyOut: c.deny}, "")
		if got := fmt.Sprint(e.Allow, e.Deny); err != nil || got != c.want || e.Restricted() != (len(e.Deny) > 0) {
			t.Errorf("%s: %s, %v, want %s", c.name, got, err, c.want)
		}
	}
	for _, text := range []string{"", "x", "example.com", "*.example.com", "1.1.1.1/33", "1.1.1", "::ffff:1.1.1.1", "::ffff:1.1.1.0/120", "fe80::1%eth0", "1.1.1.1:80", "-1.1.1.1/8", "1.1.1.1/08"} {
		_, err := egressOf(nil, api.SandboxNetwork{DenyOut: list("1.1.1.1", text)}, "network.")
		if err == nil || !strings.HasPrefix(err.Error(), "network.denyOut: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
	many := slices.Repeat([]string{"1.1.1.1"}, maxRules+1)
	if _, err := egressOf(nil, api.SandboxNetwork{AllowOut: &many}, ""); err == nil || !strings.HasPrefix(err.Error(), "allowOut: ") {
		t.Errorf("too many: %v", err)
	}
}

// Rules reach the gateway as they are asked for, and an update that leaves them
// out clears them.
func TestEgressOfCalls(t *testing.T) {
	f := newFake()
	s := newServer(t, f, nil)
	ask(t, s, "POST", "/v2/sandboxes", keyA, `{"templateID":"base","allow_internet_access":false,"network":{"allowOut":["10.0.0.0/8"]}}`)
	if len(f.made) != 1 || !slices.Equal(f.made[0].Egress.Allow, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}) || !slices.Equal(f.made[0].Egress.Deny, everything) {
		t.Errorf("made %+v", f.made)
	}
	f.egress[idA] = Egress{Deny: everything}
	if w := ask(t, s, "PUT", "/sandboxes/"+idA+"/network", keyA, `{"allowOut":["1.1.1.1"]}`); w.Code != 204 || f.egress[idA].Restricted() {
		t.Errorf("%d: the rules are %+v", w.Code, f.egress[idA])
	}
	if w := ask(t, s, "PUT", "/sandboxes/"+idA+"/network", keyA, `{"denyOut":["1.1.1.1"]}`); w.Code != 204 || len(f.egress[idA].Deny) != 1 {
		t.Errorf("%d: the rules are %+v", w.Code, f.egress[idA])
	}
	if w := ask(t, s, "PUT", "/sandboxes/"+idA+"/network", keyB, `{}`); w.Code != 404 || !f.egress[idA].Restricted() {
		t.Errorf("another team: %d, the rules are %+v", w.Code, f.egress[idA])
	}
	for _, c := range []struct{ put, want string }{
		{`{"denyOut":["1.1.1.1"],"allowOut":[]}`, `"allowInternetAccess":null && "network":{"allowOut":[],"allowPublicTraffic":true,"denyOut":["1.1.1.1"]}`},
		{`{"allow_internet_access":false}`, `"allowInternetAccess":false && "network":{"allowPublicTraffic":true}`},
		{`{}`, `"allowInternetAccess":null && "network":{"allowPublicTraffic":true}`},
	} {
		ask(t, s, "PUT", "/sandboxes/"+idA+"/network", keyA, c.put)
		w := ask(t, s, "GET", "/sandboxes/"+idA, keyA, "")
		for part := range strings.SplitSeq(c.want, " && ") {
			if !strings.Contains(w.Body.String(), part) {
				t.Errorf("after %s GET has no %s:\n%s", c.put, part, w.Body)
			}
		}
	}
	f.egress[idA] = Egress{Deny: everything}
	// The ID of a first request may be another sandbox's one day.
	named := f.sandboxes[idA]
	named.ID = "hello"
	f.sandboxes["hello"] = named
	if w := ask(t, s, "PUT", "/sandboxes/hello/network", keyA, `{"allow_internet_access":false}`); w.Code != 400 || f.egress["hello"].Restricted() {
		t.Errorf("a first request's: %d, the rules are %+v", w.Code, f.egress["hello"])
	}
	if w := ask(t, s, "PUT", "/sandboxes/hello/network", keyA, `{}`); w.Code != 204 {
		t.Errorf("a first request's, cleared: %d", w.Code)
	}
}
