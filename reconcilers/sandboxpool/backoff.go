package sandboxpool

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	backoffFirst = time.Second
	backoffMost  = time.Minute
)

// creationBackoff keeps a pool whose pods cannot be created or never become
// Ready from trying without end. Its states, per pool: clear, or failing (with a
// count, a reason and the time of the next try). A pod that turns idle, or
// another template, clears it. It lives in memory: a new leader tries once more.
// It is safe for concurrent use.
type creationBackoff struct {
	now func() time.Time

	mu    sync.Mutex
	pools map[types.NamespacedName]*trouble
}

// trouble is why a pool's creations wait. hash is the template it concerns.
type trouble struct {
	hash            string
	failures        int
	until           time.Time
	reason, message string
}

func newCreationBackoff(now func() time.Time) *creationBackoff {
	return &creationBackoff{now: now, pools: map[types.NamespacedName]*trouble{}}
}

// failed notes a failure. Those of one batch count once: while a wait runs, the
// next one does not make it longer.
func (b *creationBackoff) failed(pool types.NamespacedName, hash, reason, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.pools[pool]
	if t == nil || t.hash != hash {
		t = &trouble{hash: hash}
		b.pools[pool] = t
	}
	t.reason, t.message = reason, message
	now := b.now()
	if now.Before(t.until) {
		return
	}
	wait := backoffMost
	if t.failures < 6 {
		wait = backoffFirst << t.failures
	}
	t.failures++
	t.until = now.Add(wait)
}

// succeeded clears the pool's failures of this template.
func (b *creationBackoff) succeeded(pool types.NamespacedName, hash string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.pools[pool]; t != nil && t.hash == hash {
		delete(b.pools, pool)
	}
}

// forget drops the pool.
func (b *creationBackoff) forget(pool types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pools, pool)
}

// state returns the trouble that the pool has with this template, and how long
// creations wait; nil and 0 if there is none.
func (b *creationBackoff) state(pool types.NamespacedName, hash string) (*trouble, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.pools[pool]
	if t == nil || t.hash != hash {
		return nil, 0
	}
	out := *t
	return &out, max(t.until.Sub(b.now()), 0)
}
