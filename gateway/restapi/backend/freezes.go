package backend

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// freezes are the sandboxes that this gateway is freezing, by their pools. The index counts
// a paused sandbox only once the watch shows it, so without freezes many pauses at once would
// all take a pool's last room. What other gateways freeze at the same moment is not counted
// yet: together they may exceed a pool's limit by a few. Safe for concurrent use; the zero
// value is ready.
type freezes struct {
	mu     sync.Mutex // guards byPool
	byPool map[types.NamespacedName]map[string]int
}

// begin reports whether a sandbox may be frozen: its pool has room for most paused ones,
// paused of them by the watch, and shown says of a sandbox that the watch counts it. If ok,
// the sandbox counts until end is called.
func (f *freezes) begin(pool types.NamespacedName, id string, most int, paused func() int, shown func(id string) bool) (end func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for other := range f.byPool[pool] {
		if other != id && !shown(other) {
			n++
		}
	}
	// paused is called last: what the watch shows in between counts twice, and is never missed.
	if n+paused() >= most {
		return nil, false
	}
	if f.byPool[pool] == nil {
		if f.byPool == nil {
			f.byPool = map[types.NamespacedName]map[string]int{}
		}
		f.byPool[pool] = map[string]int{}
	}
	f.byPool[pool][id]++
	return func() { f.end(pool, id) }, true
}

func (f *freezes) end(pool types.NamespacedName, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := f.byPool[pool]
	if ids[id]--; ids[id] == 0 {
		delete(ids, id)
	}
	if len(ids) == 0 {
		delete(f.byPool, pool)
	}
}
