package sandboxpool

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// eventBurst Events of one reason are told of a pool at once, then one in
	// eventPause.
	eventBurst = 5
	eventPause = 30 * time.Second
	// mostTold bounds what is remembered.
	mostTold = 10_000
)

// told limits the Events of a pool by reason. The zero value is ready. It is safe
// for concurrent use.
type told struct {
	mu      sync.Mutex
	buckets map[toldKey]*bucket
}

type toldKey struct {
	pool   types.UID
	reason string
}

// bucket holds how many Events may be told as of a time.
type bucket struct {
	left float64
	at   time.Time
}

// may reports whether one more Event is to be told, and counts it if so.
func (t *told) may(pool types.UID, reason string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.buckets == nil || len(t.buckets) > mostTold {
		t.buckets = map[toldKey]*bucket{}
	}
	key := toldKey{pool, reason}
	b := t.buckets[key]
	if b == nil {
		b = &bucket{left: eventBurst, at: now}
		t.buckets[key] = b
	}
	if passed := now.Sub(b.at); passed > 0 {
		b.left = min(b.left+passed.Seconds()/eventPause.Seconds(), eventBurst)
	}
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}
