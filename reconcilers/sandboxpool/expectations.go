package sandboxpool

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// expectationTTL is how long a pool waits for the watch to show its writes; then
// it goes by what the cache shows.
const expectationTTL = 5 * time.Minute

// PoolExpectations keeps a pool from scaling on a cache that does not show yet
// what it created and deleted. An expectation is set before a write, and removed when the
// watch shows the write, or when it fails. It is safe for concurrent
// use.
type PoolExpectations struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	pools map[types.NamespacedName]*expected
}

type expected struct {
	// creations counts creates that the watch has not shown. It may fall below 0
	// when a create that seemed to fail had succeeded.
	creations int
	deletions map[types.UID]struct{}
	since     time.Time
}

// NewPoolExpectations returns one that expects nothing. A nil clock is the real one.
func NewPoolExpectations(c clock.PassiveClock) *PoolExpectations {
	if c == nil {
		c = clock.RealClock{}
	}
	return &PoolExpectations{clock: c, pools: map[types.NamespacedName]*expected{}}
}

// ExpectCreations tells that n pods are about to be created.
func (e *PoolExpectations) ExpectCreations(pool types.NamespacedName, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.get(pool)
	x.creations = max(x.creations, 0) + n
}

// ExpectDeletions tells that these pods are about to be deleted.
func (e *PoolExpectations) ExpectDeletions(pool types.NamespacedName, uids ...types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.get(pool)
	for _, uid := range uids {
		x.deletions[uid] = struct{}{}
	}
}

// CreationObserved tells that the watch showed a new pod, or that a create failed.
func (e *PoolExpectations) CreationObserved(pool types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.pools[pool]; x != nil {
		x.creations--
	}
}

// DeletionObserved tells that the watch showed the pod as being deleted or gone,
// or that its delete failed.
func (e *PoolExpectations) DeletionObserved(pool types.NamespacedName, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.pools[pool]; x != nil {
		delete(x.deletions, uid)
	}
}

// Satisfied reports whether the cache shows all that was written, or has had
// five minutes to.
func (e *PoolExpectations) Satisfied(pool types.NamespacedName) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.pools[pool]
	if x == nil || (x.creations <= 0 && len(x.deletions) == 0) {
		return true
	}
	if e.clock.Since(x.since) >= expectationTTL {
		delete(e.pools, pool)
		return true
	}
	return false
}

// DeleteExpectations forgets the pool.
func (e *PoolExpectations) DeleteExpectations(pool types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pools, pool)
}

// get returns the pool's entry, its time renewed. mu is held.
func (e *PoolExpectations) get(pool types.NamespacedName) *expected {
	x := e.pools[pool]
	if x == nil {
		x = &expected{deletions: map[types.UID]struct{}{}}
		e.pools[pool] = x
	}
	x.since = e.clock.Now()
	return x
}
