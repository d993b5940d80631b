package routecache

import (
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestPutAndGet(t *testing.T) {
	c := New(100)
	if c.Get("a") != nil {
		t.Fatal("an empty cache has a route")
	}
	r := testRoute("a", "10.0.0.1", 5)
	if !put(c, r) || c.Get("a") != r {
		t.Fatal("the route put is not the one got")
	}
	newer := testRoute("a", "10.0.0.2", 6)
	if !put(c, newer) || c.Get("a") != newer {
		t.Fatal("a newer route does not replace")
	}
	if !put(c, r) || c.Get("a") != newer {
		t.Fatal("a route of an older pod object replaced a newer one")
	}
	if c.Len() != 1 {
		t.Fatalf("Len = %d, want 1", c.Len())
	}
}

func TestPutAfterInvalidate(t *testing.T) {
	c := New(100)
	for _, cached := range []bool{false, true} {
		if cached {
			put(c, testRoute("a", "10.0.0.1", 5))
		}
		token := c.Begin("a")
		c.Invalidate("a")
		if c.Get("a") != nil {
			t.Error("an invalidated route is still there")
		}
		if c.Put(token, testRoute("a", "10.0.0.1", 5)) || c.Get("a") != nil {
			t.Errorf("cached %v: a resolve that began before the end was cached", cached)
		}
		if !put(c, testRoute("a", "10.0.0.1", 5)) {
			t.Error("a resolve that began after the end was refused")
		}
		c.Invalidate("a")
	}
	if c.Put(Token{}, testRoute("a", "10.0.0.1", 5)) {
		t.Error("the zero token was accepted")
	}
}

func TestDrop(t *testing.T) {
	c := New(100)
	r := testRoute("a", "10.0.0.1", 5)
	put(c, r)
	other := testRoute("a", "10.0.0.1", 5)
	other.ClaimID = "another"
	if c.Drop(other); c.Get("a") != r {
		t.Fatal("dropped the route of another claim")
	}
	if c.Drop(testRoute("a", "10.0.0.1", 4)); c.Get("a") != nil {
		t.Fatal("a route of the same claim was not dropped")
	}
}

func TestDropAll(t *testing.T) {
	c := New(1000)
	ids := numbered("s", 100)
	for _, id := range ids {
		put(c, testRoute(id, "10.0.0.1", 5))
	}
	tokens := make([]Token, len(ids))
	for i, id := range ids {
		tokens[i] = c.Begin(id)
	}
	c.DropAll()
	if c.Len() != 0 {
		t.Fatalf("%d routes left", c.Len())
	}
	for i, id := range ids {
		if c.Put(tokens[i], testRoute(id, "10.0.0.1", 5)) {
			t.Fatalf("%s: an open resolve outlived DropAll", id)
		}
	}
	if !put(c, testRoute("a", "10.0.0.1", 5)) {
		t.Fatal("nothing can be put after DropAll")
	}
}

func TestEviction(t *testing.T) {
	c := New(160)
	for _, id := range numbered("s", 1000) {
		put(c, testRoute(id, "10.0.0.1", 5))
	}
	if n := c.Len(); n > 160 || n < 100 {
		t.Errorf("Len = %d, want at most 160", n)
	}
	if got, want := c.Evictions(), uint64(1000-c.Len()); got != want {
		t.Errorf("Evictions = %d, want %d", got, want)
	}
	checkAddresses(t, c)
}

// checkAddresses checks that the address lists hold the routes of the LRUs.
func checkAddresses(t *testing.T, c *Cache) {
	t.Helper()
	for i := range c.shards {
		s := &c.shards[i]
		if len(s.addresses.routes) != s.lru.Len() || len(s.addresses.hashes) != s.lru.Len() {
			t.Fatalf("shard %d lists %d routes of %d", i, len(s.addresses.routes), s.lru.Len())
		}
		for j, r := range s.addresses.routes {
			if cached, ok := s.lru.Peek(r.SandboxID); !ok || cached != r || r.index != uint32(j) || s.addresses.hashes[j] != hashAddr(c.seed, r.Addr) {
				t.Fatalf("shard %d lists %+v, the LRU has %+v", i, r, cached)
			}
		}
	}
}

// A route that two caches were given is noticed before it takes another's place.
func TestRouteOfAnotherCache(t *testing.T) {
	one, two := New(1000), New(1000)
	r := testRoute("a", "10.0.0.1", 5)
	put(one, r)
	for _, id := range numbered("s", 500) {
		put(two, testRoute(id, "10.0.0.2", 5))
	}
	put(two, r)
	defer func() {
		if recover() == nil {
			t.Error("the route went without a word")
		}
		checkAddresses(t, two)
	}()
	one.Invalidate("a")
}

func TestRange(t *testing.T) {
	c := New(1000)
	for _, id := range numbered("s", 50) {
		put(c, testRoute(id, "10.0.0.1", 5))
	}
	seen := map[string]bool{}
	c.Range(func(r *Route) bool { seen[r.SandboxID] = true; return true })
	if len(seen) != 50 {
		t.Errorf("Range saw %d routes of 50", len(seen))
	}
	calls := 0
	c.Range(func(*Route) bool { calls++; return false })
	if calls != 1 {
		t.Errorf("Range went on after false: %d calls", calls)
	}
}

func TestPutPanics(t *testing.T) {
	for name, change := range map[string]func(*Route){
		"no use":     func(r *Route) { r.Use = nil },
		"no address": func(r *Route) { r.Addr = netip.Addr{} },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			c, r := New(1), testRoute("a", "10.0.0.1", 1)
			change(r)
			put(c, r)
		}()
	}
}

func TestClaimUseKeepsTheLatest(t *testing.T) {
	var s ClaimUse
	for _, now := range []int64{5, 3, 9, 9, 1} {
		s.Touch(now)
	}
	if s.Load() != 9 {
		t.Errorf("Load = %d, want 9", s.Load())
	}
}

func TestRegisterMetrics(t *testing.T) {
	c := New(16)
	reg := prometheus.NewRegistry()
	if err := c.RegisterMetrics(reg); err != nil {
		t.Fatal(err)
	}
	put(c, testRoute("a", "10.0.0.1", 5))
	if err := c.Fence(t.Context(), []Fence{{Addr: netip.MustParseAddr("10.0.0.2"), RV: 7}}); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		got[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	for name, want := range map[string]float64{
		"sandlane_routecache_entries":            1,
		"sandlane_routecache_refused_addresses":  1,
		"sandlane_routecache_handlers_in_flight": 0,
		"sandlane_routecache_evictions_total":    0,
		"sandlane_routecache_puts_refused_total": 0,
		"sandlane_routecache_fence_seconds":      1,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s = %v (there: %v), want %v", name, v, ok, want)
		}
	}
	if err := c.RegisterMetrics(reg); err == nil {
		t.Error("registering twice is no error")
	}
}
