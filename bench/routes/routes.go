package routes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/routecache"
)

// hot is how many routes get the hits of the operation "hot", as in a gateway in which fewer
// routes are in use than are kept.
const hot = 1000

// goroutines is how many there are at once, in turns.
var goroutines = []int{1, 2, 8}

// batch is how many operations a goroutine does between two reads of the clock.
const batch = 256

// Section returns the section of this package.
func Section() suite.Section {
	return suite.Section{Name: "routes", About: "the route cache beside golang-lru and a map under a mutex", Run: run}
}

func run(ctx context.Context, e *suite.Env) error {
	for _, size := range e.Entries {
		e.Progress("%d routes", size)
		stored, fresh := many("stored-", size), many("fresh-", min(size, 100_000))
		var stores []store
		for _, k := range kinds() {
			s, perEntry := fill(k, stored)
			stores = append(stores, s)
			memory(e, size, k.name, perEntry, len(stored[size-1].SandboxID))
			row := fmt.Sprintf("routes/%d/%s/hit-allocations", size, k.name)
			e.Add(row, "a hit", "less", testing.AllocsPerRun(10_000, func() { s.get(stored[size/2].SandboxID) }))
		}
		if err := measure(ctx, e, size, stores, stored, fresh); err != nil {
			return err
		}
		if err := evict(ctx, e, size); err != nil {
			return err
		}
	}
	return nil
}

// headers is the size of an ID's string headers in the route, in the list and in the map.
const headers = 3 * 16

// memory adds the bytes of an entry with its route, but without the text of its ID, which
// the caller has as well.
func memory(e *suite.Env, size int, kind string, perEntry float64, id int) {
	row := fmt.Sprintf("routes/%d/%s/", size, kind)
	e.Add(row+"memory", "bytes an entry", "less", perEntry)
	if kind == "sandlane" {
		e.Add(row+"memory-beyond-key", "bytes an entry", "less", perEntry-headers)
		e.Add(row+"whole", "MB", "less", (perEntry+float64(id))*float64(size)/1e6)
	}
}

func many(prefix string, n int) []*routecache.Route {
	all := make([]*routecache.Route, n)
	for i := range all {
		all[i] = route(prefix+strconv.Itoa(i), i)
	}
	return all
}

// fill makes a store with room for more than all routes, since the route cache evicts by
// shard. It gets routes of its own with the same IDs, so that their memory is counted too.
func fill(k kind, routes []*routecache.Route) (store, float64) {
	before := heap()
	s := k.make(len(routes) + len(routes)/8 + 1024)
	for i, r := range routes {
		s.put(route(r.SandboxID, i))
	}
	after := heap()
	return s, (float64(after) - float64(before)) / float64(len(routes))
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// measure takes the stores in turns, for each operation and number of goroutines.
func measure(ctx context.Context, e *suite.Env, size int, stores []store, stored, fresh []*routecache.Route) error {
	names := kinds()
	operations := []struct {
		name string
		do   func(s store, r *rand.Rand) bool // false is a failure
	}{
		{"hot", func(s store, r *rand.Rand) bool { return s.get(stored[r.IntN(min(hot, len(stored)))].SandboxID) }},
		{"hit", func(s store, r *rand.Rand) bool { return s.get(stored[r.IntN(len(stored))].SandboxID) }},
		{"miss", func(s store, r *rand.Rand) bool { return !s.get(fresh[r.IntN(len(fresh))].SandboxID) }},
		{"put", func(s store, r *rand.Rand) bool { s.put(stored[r.IntN(len(stored))]); return true }},
	}
	for _, o := range operations {
		for _, goroutines := range goroutines {
			var turns []func(context.Context, int) error
			for i, s := range stores {
				row := fmt.Sprintf("routes/%d/%s/%s-%d", size, names[i].name, o.name, goroutines)
				turns = append(turns, func(context.Context, int) error {
					return each(e, row, goroutines, func(r *rand.Rand) bool { return o.do(s, r) })
				})
			}
			if err := suite.InTurns(ctx, e.Pairs, turns...); err != nil {
				return err
			}
		}
	}
	if row := e.Row(fmt.Sprintf("routes/%d/sandlane/hit-1", size)); row != nil {
		row.Note = "each is of another route, which no cache of the processor has: see what the map takes"
	}
	return nil
}

// evict puts new routes into full stores, one after the other from a ring of twice as many as
// fit: a route was evicted long before it is put again.
func evict(ctx context.Context, e *suite.Env, size int) error {
	ring := many("evict-", 2*size)
	next := make([]atomic.Int64, len(kinds()))
	var stores []store
	for i, k := range kinds() {
		s := k.make(size)
		for _, r := range ring[:size] {
			s.put(r)
		}
		next[i].Store(int64(size))
		stores = append(stores, s)
	}
	for _, goroutines := range goroutines {
		var turns []func(context.Context, int) error
		for i, k := range kinds() {
			row := fmt.Sprintf("routes/%d/%s/evict-%d", size, k.name, goroutines)
			turns = append(turns, func(context.Context, int) error {
				return each(e, row, goroutines, func(*rand.Rand) bool {
					stores[i].put(ring[int(next[i].Add(1)-1)%len(ring)])
					return true
				})
			})
		}
		if err := suite.InTurns(ctx, e.Pairs, turns...); err != nil {
			return err
		}
	}
	return nil
}

// each runs do in so many goroutines for a hundredth of a round, which is a million hits,
// and adds the time of one operation as one goroutine sees it. It is an error if do returns
// false.
func each(e *suite.Env, row string, goroutines int, do func(r *rand.Rand) bool) error {
	var (
		all          sync.WaitGroup
		total, wrong atomic.Int64
		d            = e.RoundTime / 100
		start        = time.Now()
	)
	for i := range goroutines {
		all.Go(func() {
			r, n, bad := rand.New(rand.NewPCG(1, uint64(i))), int64(0), int64(0)
			// At least one batch: on a busy machine the goroutine may begin after its time.
			for n == 0 || time.Since(start) < d {
				for range batch {
					if !do(r) {
						bad++
					}
				}
				n += batch
			}
			total.Add(n)
			wrong.Add(bad)
		})
	}
	all.Wait()
	took := time.Since(start)
	if n := wrong.Load(); n > 0 {
		return fmt.Errorf("%s: %d of %d operations found what they must not, or did not find what they must", row, n, total.Load())
	}
	e.Add(row, "ns", "less", float64(took.Nanoseconds())*float64(goroutines)/float64(total.Load()))
	return nil
}
