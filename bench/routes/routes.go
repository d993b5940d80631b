package routes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandlane/sandlane/bench/result"
	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/routecache"
)

// hot is how many routes get the hits of the operation of that name: what is in use
// now is less than what is kept.
const hot = 1000

// batch is how many operations a goroutine does between two looks at the clock.
const batch = 256

// Section is the package's.
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
			e.Add(fmt.Sprintf("routes/%d/%s/memory", size, k.name), "bytes an entry", "less", perEntry)
		}
		if err := measure(ctx, e, size, stores, stored, fresh); err != nil {
			return err
		}
	}
	return nil
}

func many(prefix string, n int) []*routecache.Route {
	all := make([]*routecache.Route, n)
	for i := range all {
		all[i] = route(prefix, i)
	}
	return all
}

// fill makes a store with room for all routes, and some: the route cache evicts
// by shard. What it costs is beyond the routes themselves, which are there.
func fill(k kind, routes []*routecache.Route) (store, float64) {
	before := heap()
	s := k.make(len(routes) + len(routes)/8 + 1024)
	for _, r := range routes {
		s.put(r)
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
		do   func(s store, r *rand.Rand)
	}{
		{"hot", func(s store, r *rand.Rand) { s.get(stored[r.IntN(min(hot, len(stored)))].SandboxID) }},
		{"hit", func(s store, r *rand.Rand) { s.get(stored[r.IntN(len(stored))].SandboxID) }},
		{"miss", func(s store, r *rand.Rand) { s.get(fresh[r.IntN(len(fresh))].SandboxID) }},
		{"put", func(s store, r *rand.Rand) { s.put(stored[r.IntN(len(stored))]) }},
	}
	d := e.RoundTime / 100 // a hundredth of a second is a million hits
	for _, o := range operations {
		for _, goroutines := range []int{1, 2, 8} {
			var turns []func(context.Context, int) error
			for i, s := range stores {
				row := fmt.Sprintf("routes/%d/%s/%s-%d", size, names[i].name, o.name, goroutines)
				turns = append(turns, func(context.Context, int) error {
					e.Add(row, "ns", "less", each(goroutines, d, func(r *rand.Rand) { o.do(s, r) }))
					return nil
				})
			}
			if err := suite.InTurns(ctx, e.Pairs, turns...); err != nil {
				return err
			}
		}
	}
	if size == 100_000 {
		row := func(figure string) *result.Row { return e.Row(fmt.Sprintf("routes/%d/sandlane/%s", size, figure)) }
		row("hot-1").Budget, row("hit-1").Budget = &result.Budget{Value: 100}, &result.Budget{Value: 100}
		row("hit-1").Note = "each is of another route, which no cache of the processor has: see what the map takes"
		row("memory").Budget = &result.Budget{Value: 200}
	}
	return evict(ctx, e, size)
}

// evict puts new routes into stores that are full.
func evict(ctx context.Context, e *suite.Env, size int) error {
	routes := many("evict-", 2*size)
	var turns []func(context.Context, int) error
	for _, k := range kinds() {
		s := k.make(size)
		for _, r := range routes[:size] {
			s.put(r)
		}
		var next atomic.Int64
		turns = append(turns, func(context.Context, int) error {
			e.Add(fmt.Sprintf("routes/%d/%s/evict-1", size, k.name), "ns", "less", each(1, e.RoundTime/100, func(*rand.Rand) {
				s.put(routes[int(next.Add(1))%len(routes)])
			}))
			return nil
		})
	}
	return suite.InTurns(ctx, e.Pairs, turns...)
}

// each runs do in so many goroutines for d, and returns the time of one operation
// as one goroutine sees it.
func each(goroutines int, d time.Duration, do func(r *rand.Rand)) float64 {
	var (
		all   sync.WaitGroup
		total atomic.Int64
		start = time.Now()
	)
	for i := range goroutines {
		all.Go(func() {
			r, n := rand.New(rand.NewPCG(1, uint64(i))), int64(0)
			// Once at least: a busy machine may begin it after its time.
			for n == 0 || time.Since(start) < d {
				for range batch {
					do(r)
				}
				n += batch
			}
			total.Add(n)
		})
	}
	all.Wait()
	return float64(time.Since(start).Nanoseconds()) * float64(goroutines) / float64(total.Load())
}
