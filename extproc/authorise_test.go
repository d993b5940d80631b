package extproc

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
)

// First-request answers: who may make a sandbox by naming it.
func TestFirstRequestRules(t *testing.T) {
	made := func(ns, pool, team string) *routing.Request {
		return &routing.Request{ID: "new", Namespace: ns, Pool: pool, Team: team, New: true}
	}
	path := func(more ...string) []string {
		return append([]string{":authority", "localhost", ":path", "/sandboxes/new/8000/"}, more...)
	}
	tests := []struct {
		name      string
		noDefault bool
		// defaultPool is that of the fixture if empty.
		defaultPool string
		headers     []string
		status      int
		message     string // part of it
		want        *routing.Request
	}{
		{name: "default pool", headers: host("new"), want: made("default", "echo", "")},
		{name: "the default pool is gone", defaultPool: "gone", headers: host("new"), status: 404, message: "pool for first requests was not found"},
		{name: "the default pool is gone, another is named", defaultPool: "gone", headers: named("new", "x-sandbox-pool", "default/nope"), status: 401, message: "API key"},
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
		{name: "unknown pool", headers: named("new", "x-sandbox-pool", "default/nope"), status: 401, message: "API key"},
		{name: "unknown pool, no namespace", headers: named("new", "x-sandbox-pool", "nope"), status: 401, message: "API key"},
		{name: "unknown pool, key", headers: named("new", "x-sandbox-pool", "team/nope", "x-sandbox-api-key", "key-team"), status: 404, message: "team/nope"},
		{name: "unknown pool, key of another namespace", headers: named("new", "x-sandbox-pool", "team/nope", "x-sandbox-api-key", "key-other"), status: 403, message: "team/nope"},
		{name: "pool forbids", headers: named("new", "x-sandbox-pool", "team/closed"), status: 401, message: "API key"},
		{name: "reserved ID", headers: host("keyed-1"), status: 403, message: "reserved for another pool"},
		{name: "reserved ID, the pool's own", headers: named("keyed-1", "x-sandbox-pool", "team/keyed", "x-sandbox-api-key", "key-team"), want: &routing.Request{ID: "keyed-1", Namespace: "team", Pool: "keyed", Team: "red", New: true}},
		{name: "reserved ID, no key", headers: named("keyed-1", "x-sandbox-pool", "team/token"), status: 401, message: "API key"},
		{name: "reach by token, first request by key", headers: named("new", "x-sandbox-pool", "team/token", "x-sandbox-api-key", "key-team"), want: made("team", "token", "red")},
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
		{name: "env", headers: named("new", "x-sandbox-env", "default/env-echo"), want: &routing.Request{ID: "new", Namespace: "default", Env: "env-echo", New: true}},
		{name: "env, no namespace", headers: named("new", "x-sandbox-env", "env-echo"), want: &routing.Request{ID: "new", Namespace: "default", Env: "env-echo", New: true}},
		{name: "env in the path form", headers: path("x-sandbox-env", "env-echo"), want: &routing.Request{ID: "new", Namespace: "default", Env: "env-echo", New: true}},
		{name: "env, no namespace, the key's", headers: named("new", "x-sandbox-env", "env-keyed", "x-sandbox-api-key", "key-team"), want: &routing.Request{ID: "new", Namespace: "team", Env: "env-keyed", Team: "red", New: true}},
		{name: "env and its member", headers: named("new", "x-sandbox-env", "env-echo", "x-sandbox-pool", "default/echo"), want: &routing.Request{ID: "new", Namespace: "default", Env: "env-echo", New: true}},
		{name: "env and another pool", headers: named("new", "x-sandbox-env", "env-echo", "x-sandbox-pool", "other"), status: 400, message: "X-Sandbox-Env and X-Sandbox-Pool disagree"},
		{name: "env and a pool of another namespace", headers: named("new", "x-sandbox-env", "env-echo", "x-sandbox-pool", "team/echo"), status: 400, message: "disagree"},
		{name: "env that asks for a key, and its member", headers: named("new", "x-sandbox-env", "team/env-keyed", "x-sandbox-pool", "team/keyed"), status: 401, message: "API key"},
		{name: "env that asks for a key, and another pool", headers: named("new", "x-sandbox-env", "team/env-keyed", "x-sandbox-pool", "team/other"), status: 401, message: "API key"},
		{name: "env, a key, and another pool", headers: named("new", "x-sandbox-env", "team/env-keyed", "x-sandbox-pool", "team/other", "x-sandbox-api-key", "key-team"), status: 400, message: "disagree"},
		{name: "env, a key of another namespace, and another pool", headers: named("new", "x-sandbox-env", "team/env-keyed", "x-sandbox-pool", "team/other", "x-sandbox-api-key", "key-other"), status: 403, message: "Env team/env-keyed"},
		{name: "unknown env", headers: named("new", "x-sandbox-env", "env-nope"), status: 401, message: "API key"},
		{name: "unknown env, key", headers: named("new", "x-sandbox-env", "team/env-nope", "x-sandbox-api-key", "key-team"), status: 404, message: "Env team/env-nope was not found"},
		{name: "env of another namespace than the key", headers: named("new", "x-sandbox-env", "team/env-keyed", "x-sandbox-api-key", "key-other"), status: 403, message: "Env team/env-keyed"},
		{name: "env forbids keys too", headers: named("new", "x-sandbox-env", "team/env-closed", "x-sandbox-api-key", "key-team"), status: 403, message: "Env team/env-closed"},
		{name: "env, an ID that is reserved for another", headers: named("keyed-1", "x-sandbox-env", "env-echo"), status: 403, message: "reserved for another pool"},
		{name: "broken env", headers: named("new", "x-sandbox-env", "Base!"), status: 400, message: "Invalid X-Sandbox-Env"},
		{name: "two envs", headers: named("new", "x-sandbox-env", "env-echo", "x-sandbox-env", "env-echo"), status: 400},
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
			if tt.defaultPool != "" {
				change = append(change, func(o *Options) { o.FirstRequestPool.Name = tt.defaultPool })
			}
			f := newFixture(t, change...)
			f.act.do = func(_ context.Context, r routing.Request) error {
				route := testRoute(r.ID)
				route.Pool = routecache.PoolOf(r.Namespace, cmp.Or(r.Pool, strings.TrimPrefix(r.Env, "env-")))
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
			if len(f.act.calls) > 0 || len(f.activity.parked) > 0 || len(f.activity.uses) > 0 {
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
		res     routing.Answer
		headers []string
		status  int // 0: routed
	}{
		{"public", routing.Answer{Namespace: "default", Pool: "echo"}, host("a"), 0},
		{"key missing", routing.Answer{Namespace: "team", Pool: "keyed"}, host("a"), 401},
		{"key wrong", routing.Answer{Namespace: "team", Pool: "keyed"}, append(host("a"), "x-sandbox-api-key", "nonsense"), 401},
		{"key right", routing.Answer{Namespace: "team", Pool: "keyed", Team: "red"}, append(host("a"), "x-sandbox-api-key", "key-team"), 0},
		{"key of another namespace", routing.Answer{Namespace: "team", Pool: "keyed"}, append(host("a"), "x-sandbox-api-key", "key-other"), 502},
		{"nobody", routing.Answer{Namespace: "team", Pool: "closed"}, append(host("a"), "x-sandbox-api-key", "key-team"), 403},
		{"pool gone", routing.Answer{Namespace: "team", Pool: "gone"}, append(host("a"), "x-sandbox-api-key", "key-team"), 404},
		{"pool gone, key missing", routing.Answer{Namespace: "team", Pool: "gone"}, host("a"), 401},
		{"reach by token, claim by key", routing.Answer{Namespace: "team", Pool: "token"}, append(host("a"), "e2b-traffic-access-token", "token-a-"), 401},
		{"pool gone, its env is public", routing.Answer{Namespace: "default", Env: "env-echo", Pool: "gone"}, host("a"), 0},
		{"pool gone, its env asks for a key", routing.Answer{Namespace: "team", Env: "env-keyed", Pool: "gone"}, host("a"), 401},
		{"pool and env gone", routing.Answer{Namespace: "default", Env: "env-gone", Pool: "gone"}, host("a"), 401},
		{"of an env, never had a pool", routing.Answer{Namespace: "default", Env: "env-echo"}, host("a"), 0},
		{"pool of another namespace", routing.Answer{Namespace: "default", Pool: "echo"}, named("a", "x-sandbox-pool", "team/echo"), 502},
		{"another pool of the namespace", routing.Answer{Namespace: "default", Pool: "echo"}, named("a", "x-sandbox-pool", "default/other"), 0},
		{"private, no token", routing.Answer{Namespace: "default", Pool: "echo", Private: true, UID: "second"}, host("a"), 403},
		{"private, token of an earlier sandbox of the name", routing.Answer{Namespace: "default", Pool: "echo", Private: true, UID: "second"}, append(host("a"), "e2b-traffic-access-token", "token-a-first"), 403},
		{"private, token", routing.Answer{Namespace: "default", Pool: "echo", Private: true, UID: "second"}, append(host("a"), "e2b-traffic-access-token", "token-a-second"), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, withDefaultPool)
			tt.res.State = routing.NoPod
			f.resolver.setIndex("a", tt.res)
			f.act.do = func(_ context.Context, r routing.Request) error {
				route := testRoute(r.ID)
				pool := tt.res.Pool
				if tt.res.Env != "" {
					pool = strings.TrimPrefix(tt.res.Env, "env-") // a member that is there
				}
				route.Pool, route.Private, route.TokenUID = routecache.PoolOf(tt.res.Namespace, pool), tt.res.Private, &tt.res.UID
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
			r.Private, r.Guarded, r.TokenUID = tt.private, true, new(types.UID("second"))
			f.put(t, r)
			a := f.ask(t, tt.headers...)
			if a.status != tt.status || a.body.Message != tt.message && tt.message != "" {
				t.Errorf("answer %+v", a)
			}
			if tt.status == http.StatusForbidden && f.activity.ClaimUse("a", r.ClaimID).Load() != 0 {
				t.Error("a refused request keeps the sandbox alive")
			}
		})
	}
}

// A sandbox that was made by name asks for what its pool says, on a cache hit and on
// a miss, while it runs and while it starts; one of a generated ID does not.
func TestReach(t *testing.T) {
	key := func(k string) []string { return []string{"x-sandbox-api-key", k} }
	token := func(id string) []string { return []string{"e2b-traffic-access-token", "token-" + id + "-second"} }
	tests := []struct {
		name, id, pool, port string
		guarded              bool
		more                 []string
		status               int
	}{
		{"key missing", "a", "keyed", "8000", true, nil, 401},
		{"key wrong", "a", "keyed", "8000", true, key("nonsense"), 401},
		{"key of another namespace", "a", "keyed", "8000", true, key("key-other"), 502},
		{"key right", "a", "keyed", "8000", true, key("key-team"), 0},
		{"token instead of a key", "a", "keyed", "8000", true, token("a"), 401},
		{"sandboxd's port", "a", "keyed", "49983", true, nil, 0},
		{"sandboxd's port without its guard", "a", "keyed", "49983", false, nil, 401},
		{"token missing", "a", "token", "8000", true, nil, 403},
		{"token wrong", "a", "token", "8000", true, token("b"), 403},
		{"token of an earlier sandbox of the name", "a", "token", "8000", true, []string{"e2b-traffic-access-token", "token-a-first"}, 403},
		{"token right", "a", "token", "8000", true, token("a"), 0},
		{"key instead of a token", "a", "token", "8000", true, key("key-team"), 0},
		{"public", "a", "open", "8000", true, nil, 0},
		{"closed pool", "a", "closed", "8000", true, nil, 401},
		{"closed pool, key", "a", "closed", "8000", true, key("key-team"), 0},
		{"pool gone", "a", "gone", "8000", true, nil, 401},
		{"generated ID", generated, "keyed", "8000", true, nil, 0},
	}
	for _, tt := range tests {
		route := testRoute(tt.id)
		route.Pool, route.Guarded, route.TokenUID = routecache.PoolOf("team", tt.pool), tt.guarded, new(types.UID("second"))
		headers := append([]string{":authority", tt.port + "-" + tt.id + ".localhost", ":path", "/"}, tt.more...)
		check := func(t *testing.T, f *fixture) {
			t.Helper()
			if a := f.ask(t, headers...); a.status != tt.status {
				t.Errorf("answer %+v, want %d", a, tt.status)
			}
			if tt.status != 0 && len(f.act.calls) > 0 {
				t.Error("activated before authorisation")
			}
		}
		t.Run(tt.name+"/hit", func(t *testing.T) {
			f := newFixture(t)
			f.put(t, route)
			check(t, f)
		})
		t.Run(tt.name+"/miss", func(t *testing.T) {
			f := newFixture(t)
			f.resolver.setIndex(tt.id, routing.Answer{State: routing.Running, Route: route, Namespace: "team", Pool: tt.pool, Guarded: tt.guarded, UID: "second"})
			check(t, f)
		})
		t.Run(tt.name+"/starting", func(t *testing.T) {
			f := newFixture(t)
			starting := routing.Answer{State: routing.Starting, Namespace: "team", Pool: tt.pool, Guarded: tt.guarded, UID: "second"}
			f.resolver.setIndex(tt.id, starting)
			f.resolver.live[tt.id] = starting
			f.act.do = func(context.Context, routing.Request) error { f.put(t, route); return nil }
			check(t, f)
		})
	}
}
