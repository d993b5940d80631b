package routecache

import (
	"net/netip"
	"testing"
)

var addr1 = netip.MustParseAddr("10.0.0.1")

func fence(t *testing.T, c *Cache, addr netip.Addr, rv uint64) {
	t.Helper()
	if err := c.Fence(t.Context(), []Fence{{Addr: addr, RV: rv}}); err != nil {
		t.Fatal(err)
	}
}

func TestFenceDropsOlderRoutesOnly(t *testing.T) {
	c := New(100)
	put(c, testRoute("old", "10.0.0.1", 9))
	put(c, testRoute("same", "10.0.0.1", 10))
	put(c, testRoute("elsewhere", "10.0.0.2", 9))
	put(c, testRoute("mapped", "::ffff:10.0.0.1", 9))
	fence(t, c, addr1, 10)
	for id, want := range map[string]bool{"old": false, "same": true, "elsewhere": true, "mapped": false} {
		if got := c.Get(id) != nil; got != want {
			t.Errorf("%s: cached %v, want %v", id, got, want)
		}
	}
}

func TestFenceRefusesUntilPodsSeen(t *testing.T) {
	c := New(100)
	old, fresh := testRoute("a", "10.0.0.1", 9), testRoute("b", "10.0.0.1", 12)
	fence(t, c, addr1, 10)
	for _, seen := range []uint64{0, 8, 9} {
		c.PodsSeen(seen)
		if put(c, old) {
			t.Fatalf("seen %d: a route older than the fence was cached", seen)
		}
	}
	if !put(c, fresh) {
		t.Fatal("a route newer than the fence was refused")
	}
	before := c.Begin("a")
	c.PodsSeen(10)
	if n := c.refusals.count(); n != 0 {
		t.Errorf("%d addresses still refused", n)
	}
	if c.Put(before, old) {
		t.Error("the lift let in a resolve that began before it")
	}
	if !put(c, old) {
		t.Error("still refused after the pod watch has passed the fence")
	}
}

// A fence may come after the pod watch has passed it. A resolve that read
// before that is refused all the same.
func TestFenceOfThePastRefusesOpenResolves(t *testing.T) {
	c := New(100)
	old := testRoute("a", "10.0.0.1", 9)
	token := c.Begin("a")
	c.PodsSeen(50)
	fence(t, c, addr1, 10)
	if c.Put(token, old) {
		t.Error("a resolve that began before the fence was cached")
	}
	if !put(c, old) {
		t.Error("a resolve that began after the fence was refused")
	}
	token = c.Begin("a")
	c.Drop(old)
	fence(t, c, addr1, 10) // the controller repeats itself
	if c.Put(token, old) {
		t.Error("a resolve that began before the repeated fence was cached")
	}
}

func TestFenceSuperseded(t *testing.T) {
	c := New(100)
	fence(t, c, addr1, 10)
	fence(t, c, addr1, 20)
	fence(t, c, addr1, 15) // late
	c.PodsSeen(15)
	if put(c, testRoute("a", "10.0.0.1", 19)) {
		t.Error("an older fence weakened a newer one")
	}
	c.PodsSeen(20)
	if !put(c, testRoute("a", "10.0.0.1", 21)) || c.refusals.count() != 0 {
		t.Error("the newest fence was not lifted")
	}
	if len(c.refusals.inForce) != 0 {
		t.Errorf("%d superseded refusals left", len(c.refusals.inForce))
	}
}

// Lifted refusals are remembered up to a bound; a resolve that is older than
// what is remembered starts over.
func TestLiftedRefusalsAreBounded(t *testing.T) {
	c := New(100)
	ancient := c.Begin("a")
	addr := addr1
	for i := range uint64(maxLifted + 500) {
		fence(t, c, addr, i+1)
		c.PodsSeen(i + 1)
		addr = addr.Next()
	}
	if n := len(c.refusals.byAddr); n > maxLifted {
		t.Errorf("%d refusals remembered, want at most %d", n, maxLifted)
	}
	if c.Put(ancient, testRoute("a", "192.168.0.1", 1<<40)) {
		t.Error("a resolve from before what is remembered was cached")
	}
	if !put(c, testRoute("a", "192.168.0.1", 1<<40)) {
		t.Error("a new resolve was refused")
	}
}

func TestFenceOfNothing(t *testing.T) {
	c := New(100)
	flight := c.Enter()
	defer flight.Leave()
	if err := c.Fence(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}
