package routes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/routecache"
)

// hot is how many routes get the hits of the operation "hot", as in a gateway in which fewer
// routes are in use than are kept.
const hot = 1000

// batch is how many hits there are between two reads of the clock.
const batch = 256

// Section returns the section of this package.
func Section() suite.Section {
	return suite.Section{Name: "routes", About: "the route cache beside golang-lru and a map under a mutex", Run: run}
}

func run(ctx context.Context, e *suite.Env) error {
	size := e.Entries
	routes := many("stored-", size)
	var stores []store
	for _, k := range kinds() {
		s, perEntry := fill(k, routes)
		stores = append(stores, s)
		memory(e, size, k.name, perEntry, len(routes[size-1].SandboxID))
		row := fmt.Sprintf("routes/%d/%s/hit-allocations", size, k.name)
		e.Add(row, "a hit", "less", testing.AllocsPerRun(10_000, func() { s.get(routes[size/2].SandboxID) }))
	}
	for _, hits := range []struct {
		name string
		of   []*routecache.Route
	}{{"hot-1", routes[:min(hot, size)]}, {"hit-1", routes}} {
		if err := measure(ctx, e, fmt.Sprintf("routes/%d/%%s/%s", size, hits.name), stores, hits.of); err != nil {
			return err
		}
	}
	e.Row(fmt.Sprintf("routes/%d/sandlane/hit-1", size)).Note = "each is of another route, which no cache of the processor has: see what the map takes"
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

// measure takes the stores in turns. The name of a store's row is rows with that of its kind.
func measure(ctx context.Context, e *suite.Env, rows string, stores []store, routes []*routecache.Route) error {
	var turns []func(context.Context, int) error
	for i, k := range kinds() {
		turns = append(turns, func(context.Context, int) error { return hit(e, fmt.Sprintf(rows, k.name), stores[i], routes) })
	}
	return suite.InTurns(ctx, e.Pairs, turns...)
}

// hit gets routes by chance for a hundredth of a round, which is half a million hits, and adds
// the time of one. It is an error if a route is not there.
func hit(e *suite.Env, row string, s store, routes []*routecache.Route) error {
	r, n, missed := rand.New(rand.NewPCG(1, 0)), 0, 0
	start := time.Now()
	for n == 0 || time.Since(start) < e.RoundTime/100 {
		for range batch {
			if !s.get(routes[r.IntN(len(routes))].SandboxID) {
				missed++
			}
		}
		n += batch
	}
	took := time.Since(start)
	if missed > 0 {
		return fmt.Errorf("%s: %d of %d routes were not found", row, missed, n)
	}
	e.Add(row, "ns", "less", float64(took.Nanoseconds())/float64(n))
	return nil
}
