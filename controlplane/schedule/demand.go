package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Waiting is what waits for pods of a pool at this gateway.
type Waiting struct {
	// IDs are hashes of the IDs of the sandboxes (HashID), each once.
	IDs []uint64
	// Oldest is since when the longest of them has waited.
	Oldest time.Time
}

// Waiting returns what waits, pool by pool; pools where nothing does are left out. A
// request whose claim is under way does not wait: it has its pod.
func (s *Set) Waiting() map[types.NamespacedName]Waiting {
	s.mu.Lock()
	schedulers := make([]*PoolScheduler, 0, len(s.pools))
	for _, m := range s.pools {
		schedulers = append(schedulers, m.PoolScheduler)
	}
	s.mu.Unlock()
	out := map[types.NamespacedName]Waiting{}
	for _, p := range schedulers {
		if w := p.waits(); len(w.IDs) > 0 {
			out[types.NamespacedName{Namespace: p.namespace, Name: p.pool}] = w
		}
	}
	return out
}

// waits is what waits in this scheduler. Hashing is done without the mutex.
func (s *PoolScheduler) waits() Waiting {
	var w Waiting
	s.mu.Lock()
	ids := make([]string, 0, s.waiting.len())
	for _, l := range s.waiting.tenants {
		for e := l.entries.Front(); e != nil; e = e.Next() {
			one := e.Value.(*entry)
			ids = append(ids, one.SandboxID)
			if w.Oldest.IsZero() || one.EnqueuedAt.Before(w.Oldest) {
				w.Oldest = one.EnqueuedAt
			}
		}
	}
	s.mu.Unlock()
	seen := make(map[uint64]bool, len(ids))
	for _, id := range ids {
		if h := HashID(id); !seen[h] {
			seen[h] = true
			w.IDs = append(w.IDs, h)
		}
	}
	return w
}

// HashID stands for the ID of a sandbox in what gateways tell controllers of demand.
// Users choose IDs, so it is one for which no second ID of the same hash can be made up.
func HashID(id string) uint64 {
	sum := sha256.Sum256([]byte(id))
	return binary.BigEndian.Uint64(sum[:8])
}
