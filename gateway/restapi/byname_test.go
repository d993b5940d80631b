package restapi

import (
	"fmt"
	"strings"
	"testing"
)

const ruled = `"network":{"denyOut":["0.0.0.0/0"],"allowOut":["api.example.com","*.files.example.com","192.0.2.0/24"],` +
	`"rules":{"api.example.com":[{"transform":{"headers":{"Authorization":"Bearer hunter2"}}}],"b.example.com":[]}}`

// byNameServer has one template, with egress by name.
func byNameServer(t *testing.T, f *fake) *Server {
	t.Helper()
	return newServer(t, f, func(o *Options) {
		all := o.Templates.(fakeTemplates)
		all[0].ByName = true
	})
}

// Names and rules reach the gateway as they are asked for, in a create and in an update,
// which clears what it leaves out.
func TestNamesAndRules(t *testing.T) {
	f := newFake()
	s := byNameServer(t, f)
	if w := ask(t, s, "POST", "/v2/sandboxes", keyA, `{"templateID":"base",`+ruled+`}`); w.Code != 201 || len(f.made) != 1 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	const want = "[192.0.2.0/24] [0.0.0.0/0 ::/0] [api.example.com *.files.example.com] map[api.example.com:map[Authorization:Bearer hunter2] b.example.com:map[]]"
	said := func(e Egress) string { return fmt.Sprint(e.Allow, e.Deny, e.Names, e.Rules) }
	if got := said(f.made[0].Egress); got != want || !f.made[0].Egress.DeniesAll() {
		t.Errorf("made with %s, want %s", got, want)
	}
	put := func(body string) int { return ask(t, s, "PUT", "/sandboxes/"+idA+"/network", keyA, body).Code }
	if code := put(`{"allow_internet_access":false,"allowOut":["*"]}`); code != 204 || fmt.Sprint(f.egress[idA].Names) != "[*]" || !f.egress[idA].DeniesAll() {
		t.Errorf("%d: %s", code, said(f.egress[idA]))
	}
	if code := put(`{"rules":{"a.example.com":[{"transform":{"headers":{"X-A":"1"}}}]}}`); code != 204 || f.egress[idA].Restricted() || len(f.egress[idA].Names) > 0 || f.egress[idA].Rules["a.example.com"]["X-A"] != "1" {
		t.Errorf("%d: %s", code, said(f.egress[idA]))
	}
	if code := put(`{}`); code != 204 || f.egress[idA].ByName() {
		t.Errorf("%d: %s", code, said(f.egress[idA]))
	}
}

// A request that asks for what cannot be is refused with the field's name, and with no
// header's value.
func TestNamesAndRulesAreRefused(t *testing.T) {
	f := newFake()
	s, plain := byNameServer(t, f), newServer(t, f, nil)
	rule := func(host, rules string) string { return `"rules":{"` + host + `":` + rules + `}` }
	headers := func(h string) string { return `[{"transform":{"headers":{` + h + `}}}]` }
	for _, c := range []struct {
		s           *Server
		body, wants string
	}{
		{s, `"allowOut":["api.example.com"]`, "you must include 'ALL_TRAFFIC' in deny out"},
		{s, `"allowOut":["api.example.com"],"denyOut":["10.0.0.0/8"]`, "you must include 'ALL_TRAFFIC'"},
		{s, `"allowOut":["a.*.com"],"denyOut":["0.0.0.0/0"]`, "allowOut: "},
		{s, `"denyOut":["example.com"]`, "denyOut: "},
		{s, rule("*", headers(`"X":"hunter2"`)), "must name a host"},
		{s, rule("a.com", headers(`"Host":"hunter2"`)), "Host cannot be set"},
		{s, rule("a.com", headers(`"X":"hunter2 ${e2b.identity.tokens.t}"`)), "${e2b.secrets.NAME}"},
		{s, rule("a.com", headers(`"X":"hunter2\n"`)), "control characters"},
		{s, rule("a.com", headers(`"X":7`)), "must be text"},
		{s, rule("a.com", `[{"transform":{"headers":{}}},{"transform":{"headers":{}}}]`), "at most one rule"},
		{s, rule("a.com", `[{"transform":{"query":{}}}]`), "headers, and nothing else"},
		{s, rule("a.com", `[{"redirect":{}}]`), "a transform, and nothing else"},
		{s, rule("a.com", `{}`), "must be a list"},
		{plain, `"allowOut":["api.example.com"],"denyOut":["0.0.0.0/0"]`, `allowOut: \"api.example.com\" is not supported by this template`},
		{plain, rule("a.com", headers(`"X":"hunter2"`)), "rules: this network rule is not supported by this template"},
	} {
		for path, body := range map[string]string{"/v2/sandboxes": `{"templateID":"base","network":{` + c.body + `}}`, "/sandboxes/" + idA + "/network": `{` + c.body + `}`} {
			method := "PUT"
			if path == "/v2/sandboxes" {
				method = "POST"
			}
			w := ask(t, c.s, method, path, keyA, body)
			if w.Code != 400 || !strings.Contains(w.Body.String(), c.wants) || strings.Contains(w.Body.String(), "hunter2") {
				t.Errorf("%s %s: %d %s, want %q", method, body, w.Code, w.Body, c.wants)
			}
		}
	}
	if len(f.made)+len(f.egress) > 0 {
		t.Error("something was made or set")
	}
}

// What is shown of a sandbox has no value that is not to be shown.
func TestRulesShown(t *testing.T) {
	f := newFake()
	named := f.sandboxes[idA]
	named.Rules = map[string]map[string]string{"api.example.com": {"Authorization": "***"}}
	f.sandboxes[idA] = named
	w := ask(t, byNameServer(t, f), "GET", "/sandboxes/"+idA, keyA, "")
	const want = `"network":{"allowPublicTraffic":true,"rules":{"api.example.com":[{"transform":{"headers":{"Authorization":"***"}}}]}}`
	if w.Code != 200 || !strings.Contains(w.Body.String(), want) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
