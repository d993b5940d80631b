package fastpath

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/sandlane/sandlane/routecache"
)

// The module sets the address as Go writes it, and the metadata that ExtProc would: the
// texts of the route.
func TestModuleAnswersFromTheTable(t *testing.T) {
	w := newWorld(t, 100)
	envoy := w.envoy(t, "run")
	for i, addr := range []string{"10.0.0.5", "fd00::5", "::ffff:10.0.0.5", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"} {
		r := w.put(t, route(fmt.Sprint("s", i), addr))
		want := map[string]string{
			"destination": netip.AddrPortFrom(r.Addr, 8000).String(), "port": "8000",
			"sandbox_id": r.SandboxID, "pod_uid": r.PodUID, "claim": r.ClaimID,
		}
		if got := envoy.Ask(t, request(r.SandboxID, "8000")...); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
	if got := envoy.Ask(t, request("unknown", "8000")...); got != nil {
		t.Errorf("an ID without a route: %v", got)
	}
}

// A route that is dropped, ended or fenced is not answered any more.
func TestRemovedRouteIsNotAnswered(t *testing.T) {
	w := newWorld(t, 100)
	envoy := w.envoy(t, "run")
	for name, remove := range map[string]func(*routecache.Route){
		"dropped":     w.cache.Drop,
		"ended":       func(r *routecache.Route) { w.cache.Invalidate(r.SandboxID) },
		"all dropped": func(*routecache.Route) { w.cache.DropAll() },
		"withdrawn":   func(r *routecache.Route) { w.cache.Retract(r.SandboxID) },
		"replaced": func(r *routecache.Route) {
			other := route(r.SandboxID, "10.0.0.6")
			other.Private = true
			w.put(t, other)
		},
		"fenced": func(r *routecache.Route) {
			if err := w.cache.Fence(t.Context(), []routecache.Fence{{Addr: r.Addr, RV: 2}}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		r := w.put(t, route(generatedID, "10.0.0."+fmt.Sprint(10+len(name))))
		if envoy.Ask(t, request(generatedID, "80")...) == nil {
			t.Fatalf("%s: no answer before", name)
		}
		remove(r)
		if got := envoy.Ask(t, request(generatedID, "80")...); got != nil {
			t.Errorf("%s: still answered: %v", name, got)
		}
		w.cache.DropAll()
		w.cache.PodsSeen(2)
	}
}

// Routes that must not be published are not. Once such a route may be published, ExtProc's
// next hit publishes it.
func TestWhatIsPublished(t *testing.T) {
	w := newWorld(t, 100)
	envoy := w.envoy(t, "run")
	closed := false
	w.open = func(*routecache.Route) bool { return !closed }
	ask := func(port string, want bool) {
		t.Helper()
		if got := envoy.Ask(t, request(generatedID, port)...); (got != nil) != want {
			t.Errorf("port %s: %v, want an answer: %v", port, got, want)
		}
	}
	hit := func() { // does what ExtProc does for a hit
		if w.cache.Get(generatedID) == nil {
			t.Fatal("the route is not cached")
		}
	}
	r := w.put(t, route(generatedID, "10.0.0.5"))
	ask("80", true)

	r.Use.SetHolding(true)
	w.cache.Retract(generatedID)
	hit()
	ask("80", false)
	r.Use.SetHolding(false)
	ask("80", false)
	hit()
	ask("80", true)

	r.Use.SetFull(true)
	w.cache.Retract(generatedID)
	hit()
	ask("80", false)
	r.Use.SetFull(false)
	hit()
	ask("80", true)

	closed = true
	w.cache.Retract(generatedID)
	hit()
	ask("80", false)
	closed = false
	w.cache.Invalidate(generatedID)

	private := route(generatedID, "10.0.0.5")
	private.Private = true
	w.put(t, private)
	ask("80", false)
	ask("49983", false)
	w.cache.Invalidate(generatedID)

	guarded := route(generatedID, "10.0.0.5")
	guarded.Private, guarded.Guarded = true, true
	w.put(t, guarded)
	ask("80", false)
	got := envoy.Ask(t, ":path", "/health", ":authority", "localhost", "e2b-sandbox-id", generatedID, "e2b-sandbox-port", "49983")
	if got["destination"] != "10.0.0.5:49983" {
		t.Errorf("port 49983 of a guarded sandbox: %v", got)
	}
}

// Routes for which a bucket or the table has no room are left to ExtProc, and none is lost.
func TestNoPlace(t *testing.T) {
	w := newWorld(t, 64)
	envoy := w.envoy(t, "run")
	w.table.mu.Lock()
	w.table.free = w.table.free[:1]
	w.table.mu.Unlock()
	w.put(t, route("one", "10.0.0.1"))
	w.put(t, route("two", "10.0.0.2"))
	if envoy.Ask(t, request("one", "80")...) == nil || envoy.Ask(t, request("two", "80")...) != nil {
		t.Error("the one entry is not the first route's alone")
	}
	w.cache.Invalidate("one")
	if w.cache.Get("two"); envoy.Ask(t, request("two", "80")...) != nil {
		t.Error("an entry was used again before a wait")
	}
	if err := w.table.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.cache.Get("two"); envoy.Ask(t, request("two", "80")...) == nil {
		t.Error("the route that found no entry was not published by the next hit")
	}
}

// A table has the size that the design promises, and has room for nearly all routes.
func TestGeometry(t *testing.T) {
	g := geometryFor(routecache.DefaultSize)
	if size := g.routesSize() + g.marksSize() + controlSize; size > 40<<20 {
		t.Errorf("a table of %d routes takes %d bytes", routecache.DefaultSize, size)
	}
	w := newWorld(t, routecache.DefaultSize)
	n := routecache.DefaultSize * 9 / 10
	for i := range n {
		w.put(t, route(fmt.Sprintf("sandbox-%d", i), "10.0.0.1"))
	}
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	if w.table.noEntry > 0 || w.table.fullBucket > uint64(n/100) {
		t.Errorf("of %d routes %d found no free word and %d no entry", n, w.table.fullBucket, w.table.noEntry)
	}
	t.Logf("%d bytes; of %d routes %d without a free word", g.routesSize()+g.marksSize(), n, w.table.fullBucket)
}
