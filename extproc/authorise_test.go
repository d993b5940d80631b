package extproc

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"unique"

	"k8s.io/apimachinery/pkg/types"
)

// First-request answers: who may make a sandbox by naming it.
func TestFirstRequestRules(t *testing.T) {
	made := func(ns, pool, team string) *ActivationRequest {
		return &ActivationRequest{ID: "new", Namespace: ns, Pool: pool, Team: team, New: true}
	}
	path := func(more ...string) []string {
		return append([]string{":authority", "localhost", ":path", "/sandboxes/new/8000/"}, more...)
	}
	tests := []struct {
		name      string
		noDefault bool
		headers   []string
		status    int
		message   string // part of it
		want      *ActivationRequest
	}{
		{name: "default pool", headers: host("new"), want: made("default", "echo", "")},
		{name: "no default pool", noDefault: true, headers: host("new"), status: 502, message: "The sandbox was not found"},
		{name: "named pool", noDefault: true, headers: named("new", "x-sandbox-pool", "default/echo"), want: made("default", "echo", "")},
		{name: "named in the path form", noDefault: true, headers: path("x-sandbox-pool", "default/echo"), want: made("default", "echo", "")},
		{name: "no namespace, default pool's", headers: named("new", "x-sandbox-pool", "echo"), want: made("default", "echo", "")},
		{name: "no namespace, no default pool", noDefault: true, headers: named("new", "x-sandbox-pool", "echo"), want: made("default", "echo", "")},
		{name: "no namespace, the key's", headers: named("new", "x-sandbox-pool", "keyed", "x-sandbox-api-key", "key-team"), want: made("team", "keyed", "red")},
		{name: "no namespace, bad key", headers: named("new", "x-sandbox-pool", "keyed", "x-sandbox-api-key", "nonsense"), status: 401, message: "API key"},
		{name: "public ignores keys", headers: named("new", "x-sandbox-pool", "default/echo", "x-sandbox-api-key", "nonsense"), want: made("default", "echo", "")},
		{name: "public, key of another namespace", headers: named("new", "x-sandbox-pool", "default/echo", "x-sandbox-api-key", "key-other"), status: 403, message: "default/echo"},
		{name: "host form ignores the pool", headers: append(host("new"), "x-sandbox-pool", "team/closed"), want: made("default", "echo", "")},
		{name: "unknown pool", headers: named("new", "x-sandbox-pool", "default/nope"), status: 404, message: "default/nope"},
		{name: "unknown pool, no namespace", headers: named("new", "x-sandbox-pool", "nope"), status: 404, message: "default/nope"},
		{name: "pool forbids", headers: named("new", "x-sandbox-pool", "team/closed"), status: 403, message: "team/closed"},
		{name: "pool forbids keys too", headers: named("new", "x-sandbox-pool", "team/closed", "x-sandbox-api-key", "key-team"), status: 403, message: "team/closed"},
		{name: "key missing", headers: named("new", "x-sandbox-pool", "team/keyed"), status: 401, message: "X-Sandbox-Api-Key"},
		{name: "key wrong", headers: named("new", "x-sandbox-pool", "team/keyed", "x-sandbox-api-key", "nonsense"), status: 401, message: "X-Sandbox-Api-Key"},
		{name: "key empty", headers: named("new", "x-sandbox-pool", "team/keyed", "x-sandbox-api-key", ""), status: 401, message: "X-Sandbox-Api-Key"},
		{name: "key right", headers: named("new", "x-sandbox-pool", "team/keyed", "x-sandbox-api-key", "key-team"), want: made("team", "keyed", "red")},
		{name: "key of another namespace", headers: named("new", "x-sandbox-pool", "team/keyed", "x-sandbox-api-key", "key-other"), status: 403, message: "team/keyed"},
		{name: "two keys", headers: named("new", "x-sandbox-pool", "team/keyed", "x-sandbox-api-key", "key-team", "x-sandbox-api-key", "key-team"), status: 400},
		{name: "X-API-Key is not read", headers: named("new", "x-sandbox-pool", "team/keyed", "x-api-key", "key-team"), status: 401},
		{name: "two pools", headers: named("new", "x-sandbox-pool", "echo", "x-sandbox-pool", "echo"), status: 400},
		{name: "pool with dots", headers: named("new", "x-sandbox-pool", "../echo"), status: 400},
		{name: "pool of three parts", headers: named("new", "x-sandbox-pool", "a/b/c"), status: 400},
		{name: "pool with markup", headers: named("new", "x-sandbox-pool", "<b>"), status: 400},
		{name: "empty pool", headers: named("new", "x-sandbox-pool", ""), status: 400},
		{name: "env", headers: named("new", "x-sandbox-env", "base"), status: 400, message: "Name a pool with X-Sandbox-Pool"},
		{name: "env and pool", headers: named("new", "x-sandbox-env", "base", "x-sandbox-pool", "echo"), status: 400, message: "X-Sandbox-Env is not supported"},
		{name: "broken env", headers: named("new", "x-sandbox-env", "Base!"), status: 400, message: "X-Sandbox-Env is not supported"},
		{name: "host form ignores the env", headers: append(host("new"), "x-sandbox-env", "base"), want: made("default", "echo", "")},
		{name: "generated form", headers: host(generated), status: 502, message: "The sandbox was not found"},
		{name: "generated form with client ID", headers: named(generated+"-x", "x-sandbox-pool", "default/echo"), status: 502},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var change []func(*Options)
			if !tt.noDefault {
				change = append(change, withDefaultPool)
			}
			f := newFixture(t, change...)
			f.act.do = func(_ context.Context, r ActivationRequest) error {
				route := testRoute(r.ID)
				route.Namespace = unique.Make(r.Namespace)
				f.put(t, route)
				return nil
			}
			a := f.ask(t, tt.headers...)
			if tt.want != nil {
				if len(f.act.calls) != 1 || f.act.calls[0] != *tt.want {
					t.Errorf("activations %+v, want %+v", f.act.calls, *tt.want)
				}
				if a.destination == "" {
					t.Errorf("answer %+v", a)
				}
				return
			}
			if a.status != tt.status || !strings.Contains(a.body.Message, tt.message) {
				t.Errorf("answer %d %q, want %d %q", a.status, a.body.Message, tt.status, tt.message)
			}
			if len(f.act.calls) > 0 || len(f.activity.parked) > 0 || len(f.activity.stamps) > 0 {
				t.Error("something was written or kept alive before authorisation")
			}
			if strings.Contains(a.raw, "key-") || strings.Contains(a.raw, "nonsense") {
				t.Errorf("the answer repeats a key: %s", a.raw)
			}
		})
	}
}

// A refused first request may be for a sandbox that the index has not seen yet.
func TestRefusedFirstRequestIsReadLive(t *testing.T) {
	f := newFixture(t)
	f.resolver.live[generated] = running(testRoute(generated))
	if a := f.ask(t, host(generated)...); a.destination == "" {
		t.Errorf("answer %+v", a)
	}
}

// A sandbox that exists and has no pod: its own pool's access counts.
func TestResumeRules(t *testing.T) {
	tests := []struct {
		name    string
		res     Resolution
		headers []string
		status  int // 0: routed
	}{
		{"public", Resolution{Namespace: "default", Pool: "echo"}, host("a"), 0},
		{"key missing", Resolution{Namespace: "team", Pool: "keyed"}, host("a"), 401},
		{"key wrong", Resolution{Namespace: "team", Pool: "keyed"}, append(host("a"), "x-sandbox-api-key", "nonsense"), 401},
		{"key right", Resolution{Namespace: "team", Pool: "keyed", Team: "red"}, append(host("a"), "x-sandbox-api-key", "key-team"), 0},
		{"key of another namespace", Resolution{Namespace: "team", Pool: "keyed"}, append(host("a"), "x-sandbox-api-key", "key-other"), 502},
		{"nobody", Resolution{Namespace: "team", Pool: "closed"}, append(host("a"), "x-sandbox-api-key", "key-team"), 403},
		{"pool gone", Resolution{Namespace: "team", Pool: "gone"}, host("a"), 404},
		{"pool of another namespace", Resolution{Namespace: "default", Pool: "echo"}, named("a", "x-sandbox-pool", "team/echo"), 502},
		{"another pool of the namespace", Resolution{Namespace: "default", Pool: "echo"}, named("a", "x-sandbox-pool", "default/other"), 0},
		{"private, no token", Resolution{Namespace: "default", Pool: "echo", PrivateUID: new(types.UID("second"))}, host("a"), 403},
		{"private, token of an earlier sandbox of the name", Resolution{Namespace: "default", Pool: "echo", PrivateUID: new(types.UID("second"))}, append(host("a"), "e2b-traffic-access-token", "token-a-first"), 403},
		{"private, token", Resolution{Namespace: "default", Pool: "echo", PrivateUID: new(types.UID("second"))}, append(host("a"), "e2b-traffic-access-token", "token-a-second"), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, withDefaultPool)
			tt.res.State = StateNoPod
			f.resolver.setIndex("a", tt.res)
			f.act.do = func(_ context.Context, r ActivationRequest) error {
				route := testRoute(r.ID)
				route.Namespace, route.PrivateUID = unique.Make(tt.res.Namespace), tt.res.PrivateUID
				f.put(t, route)
				return nil
			}
			a := f.ask(t, tt.headers...)
			if a.status != tt.status {
				t.Errorf("answer %+v", a)
			}
			if tt.status != 0 && (len(f.act.calls) > 0 || len(f.activity.parked) > 0) {
				t.Error("activated or parked before authorisation")
			}
			if tt.status == 0 && (len(f.act.calls) != 1 || f.act.calls[0].New || f.act.calls[0].Team != tt.res.Team) {
				t.Errorf("activations %+v", f.act.calls)
			}
		})
	}
}

// What a running sandbox asks for, also on a cache hit.
func TestRunningRules(t *testing.T) {
	port := func(port string, more ...string) []string {
		return append([]string{":authority", port + "-a.localhost", ":path", "/"}, more...)
	}
	const missing = "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing"
	const invalid = "Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid"
	tests := []struct {
		name    string
		private bool
		headers []string
		status  int
		message string
	}{
		{"open", false, port("8000"), 0, ""},
		{"open with a token", false, port("8000", "e2b-traffic-access-token", "nonsense"), 0, ""},
		{"private, no token", true, port("8000"), 403, missing},
		{"private, wrong token", true, port("8000", "e2b-traffic-access-token", "nonsense"), 403, invalid},
		{"private, another sandbox's token", true, port("8000", "e2b-traffic-access-token", "token-b-second"), 403, invalid},
		{"private, token of an earlier sandbox of the name", true, port("8000", "e2b-traffic-access-token", "token-a-first"), 403, invalid},
		{"private, right token", true, port("8000", "e2b-traffic-access-token", "token-a-second"), 0, ""},
		{"private, two tokens", true, port("8000", "e2b-traffic-access-token", "token-a-second", "e2b-traffic-access-token", "token-a-second"), 403, invalid},
		{"private, sandboxd's port", true, port("49983"), 0, ""},
		{"pool of another namespace", false, named("a", "x-sandbox-pool", "team/keyed"), 502, "The sandbox was not found"},
		{"env of another namespace", false, named("a", "x-sandbox-env", "team/base"), 502, "The sandbox was not found"},
		{"pool without namespace", false, named("a", "x-sandbox-pool", "echo"), 0, ""},
		{"broken pool", false, named("a", "x-sandbox-pool", "a/b/c"), 400, ""},
		{"key of another namespace", false, port("8000", "x-sandbox-api-key", "key-team"), 502, "The sandbox was not found"},
		{"key that nobody needs", false, port("8000", "x-sandbox-api-key", "nonsense"), 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			r := testRoute("a")
			if tt.private {
				r.PrivateUID = new(types.UID("second"))
			}
			f.put(t, r)
			a := f.ask(t, tt.headers...)
			if a.status != tt.status || a.body.Message != tt.message && tt.message != "" {
				t.Errorf("answer %+v", a)
			}
			if tt.status == http.StatusForbidden && f.activity.Stamp("a", r.ClaimID).Load() != 0 {
				t.Error("a refused request keeps the sandbox alive")
			}
		})
	}
}
