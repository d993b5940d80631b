package routecache

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
)

func filled(n int) (*Cache, []string) {
	c, ids := New(n+n/2), numbered("sandbox-", n)
	addr := netip.MustParseAddr("10.0.0.0")
	for _, id := range ids {
		addr = addr.Next()
		put(c, &Route{SandboxID: id, Addr: addr, PodRV: 5, Use: new(ClaimUse)})
	}
	return c, ids
}

func TestAllocs(t *testing.T) {
	c, ids := filled(1000)
	if n := testing.AllocsPerRun(1000, func() {
		f := c.Enter()
		if c.Get(ids[7]) == nil {
			t.Fatal("miss")
		}
		f.Leave()
	}); n != 0 {
		t.Errorf("a hit allocates %v times", n)
	}
	if n := testing.AllocsPerRun(1000, func() { c.Get("absent"); c.Begin("absent"); c.PodsSeen(3) }); n != 0 {
		t.Errorf("a miss allocates %v times", n)
	}
	now := int64(0)
	s := new(ClaimUse)
	if n := testing.AllocsPerRun(1000, func() { now++; s.Touch(now) }); n != 0 {
		t.Errorf("a touch allocates %v times", n)
	}
}

// An entry costs at most 200 bytes beyond its key: the route, the list element,
// the map slot and its place in the address list, less the string header of the
// ID, which the first three each hold.
func TestMemoryPerEntry(t *testing.T) {
	const n, budget, headers = 100_000, 200, 3 * 16
	ids := numbered("sandbox-", n)
	use := new(ClaimUse)
	c := New(n + n/2)
	before := heapInUse()
	for _, id := range ids {
		put(c, &Route{SandboxID: id, Addr: netip.MustParseAddr("10.0.0.1"), PodRV: 5, Use: use})
	}
	perEntry := float64(heapInUse()-before) / n
	t.Logf("%.0f bytes per entry, %.0f beyond the key", perEntry, perEntry-headers)
	if perEntry-headers > budget {
		t.Errorf("%.0f bytes per entry beyond the key, budget %d", perEntry-headers, budget)
	}
	runtime.KeepAlive(ids)
	runtime.KeepAlive(c)
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkHit(b *testing.B) {
	c, ids := filled(100_000)
	for _, used := range []int{1, 1000, 100_000} { // what is more costs cache misses of the CPU
		ids := ids[:used]
		b.Run(fmt.Sprintf("%d/sequential", used), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				f := c.Enter()
				if c.Get(ids[i%len(ids)]) == nil {
					b.Fatal("miss")
				}
				f.Leave()
			}
		})
		b.Run(fmt.Sprintf("%d/parallel", used), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					f := c.Enter()
					c.Get(ids[i%len(ids)])
					f.Leave()
				}
			})
		})
	}
}

func BenchmarkMiss(b *testing.B) {
	c, _ := filled(100_000)
	b.Run("sequential", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Get("absent")
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				c.Get("absent")
			}
		})
	})
}

func BenchmarkPut(b *testing.B) {
	routes := make([]*Route, 100_000)
	for i, id := range numbered("sandbox-", len(routes)) {
		routes[i] = testRoute(id, "10.0.0.1", 5)
	}
	c := New(50_000) // half of them are evicted
	b.Run("sequential", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			put(c, routes[i%len(routes)])
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				put(c, routes[i%len(routes)])
			}
		})
	})
}

func BenchmarkFence(b *testing.B) {
	c, _ := filled(100_000)
	for _, batch := range []int{1, 1000} {
		for _, kind := range []string{"absent", "cached"} {
			b.Run(fmt.Sprintf("%s/%d", kind, batch), func(b *testing.B) {
				addr := netip.MustParseAddr("192.168.0.0")
				if kind == "cached" {
					addr = netip.MustParseAddr("10.0.0.0")
				}
				fences := make([]Fence, batch)
				for i := range fences {
					addr = addr.Next()
					fences[i] = Fence{Addr: addr, RV: 5} // cached ones are not older: they stay
				}
				c.PodsSeen(5)
				for b.Loop() {
					if err := c.Fence(b.Context(), fences); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
