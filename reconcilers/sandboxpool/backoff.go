package sandboxpool

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/kubeclient/backoff"
)

const (
	backoffFirst = time.Second
	backoffMost  = time.Minute
)

// creationBackoff keeps a pool whose pods cannot be created, or never become
// Ready, from trying without end. A pool has up to two troubles:
//
//	refused  the API server did not take a pod. Its window of creations is 1
//	         then, and doubles with each that succeeds; it is over when all that
//	         was wanted could be made.
//	unready  a pod did not become Ready in time. One pod at a time is tried until
//	         one turns idle.
//
// It also remembers how many pods of the template were Ready at a time, so that a
// pool that was scaled to nothing makes as many at a time again; an unready pod
// ends that. Another template clears all. It lives in memory: a new leader tries
// once more. It is safe for concurrent use.
type creationBackoff struct {
	now func() time.Time

	mu    sync.Mutex
	pools map[types.NamespacedName]*poolTrouble
}

// poolTrouble is a pool's troubles with the template of the hash.
type poolTrouble struct {
	hash             string
	refused, unready *trouble
	proven           int
}

// trouble is why a pool's creations wait.
type trouble struct {
	wait            time.Duration // the last one
	until           time.Time
	reason, message string
	window          int
}

// troubles is a copy of what a pool has with its template; wait is how long
// creations wait for it.
type troubles struct {
	refused, unready *trouble
	wait             time.Duration
	proven           int
}

// worst is the trouble to show.
func (t troubles) worst() *trouble {
	if t.refused != nil {
		return t.refused
	}
	return t.unready
}

func newCreationBackoff(now func() time.Time) *creationBackoff {
	return &creationBackoff{now: now, pools: map[types.NamespacedName]*poolTrouble{}}
}

// refused notes that the API server did not take a pod.
func (b *creationBackoff) refused(pool types.NamespacedName, hash, reason, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.of(pool, hash)
	p.refused = b.fail(p.refused, reason, message)
	p.refused.window = 1
}

// unready notes that a pod did not become Ready in time.
func (b *creationBackoff) unready(pool types.NamespacedName, hash, reason, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.of(pool, hash)
	p.unready, p.proven = b.fail(p.unready, reason, message), 0
}

// fail notes one more failure. Those of one batch count once: while a wait runs,
// the next one does not make it longer. mu is held.
func (b *creationBackoff) fail(t *trouble, reason, message string) *trouble {
	if t == nil {
		t = &trouble{}
	}
	t.reason, t.message = reason, message
	now := b.now()
	if now.Before(t.until) {
		return t
	}
	t.wait = backoff.Next(t.wait, backoffFirst, backoffMost)
	t.until = now.Add(t.wait)
	return t
}

// accepted notes that the API server took what it was sent, or that nothing was
// to be sent; all: that was all that is wanted.
func (b *creationBackoff) accepted(pool types.NamespacedName, hash string, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pools[pool]
	switch {
	case p == nil || p.hash != hash || p.refused == nil:
	case all:
		p.refused = nil
	default:
		p.refused.window, p.refused.wait, p.refused.until = 2*p.refused.window, 0, time.Time{}
	}
}

// idle notes that a pod of the template has turned idle.
func (b *creationBackoff) idle(pool types.NamespacedName, hash string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pools[pool]; p != nil && p.hash == hash {
		p.unready = nil
	}
}

// noteReady notes how many pods of the template have been Ready.
func (b *creationBackoff) noteReady(pool types.NamespacedName, hash string, proven int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.of(pool, hash)
	p.proven = max(p.proven, proven)
}

// forget drops the pool.
func (b *creationBackoff) forget(pool types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pools, pool)
}

// state returns the troubles that the pool has with this template.
func (b *creationBackoff) state(pool types.NamespacedName, hash string) troubles {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pools[pool]
	if p == nil || p.hash != hash {
		return troubles{}
	}
	out := troubles{proven: p.proven}
	now := b.now()
	clone := func(t *trouble) *trouble {
		if t == nil {
			return nil
		}
		c := *t
		out.wait = max(out.wait, t.until.Sub(now))
		return &c
	}
	out.refused, out.unready = clone(p.refused), clone(p.unready)
	return out
}

// of returns the pool's entry for the template. mu is held.
func (b *creationBackoff) of(pool types.NamespacedName, hash string) *poolTrouble {
	p := b.pools[pool]
	if p == nil || p.hash != hash {
		p = &poolTrouble{hash: hash}
		b.pools[pool] = p
	}
	return p
}
