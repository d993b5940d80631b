package sandboxpool

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// An event limit of a pool and reason: eventBurst at once, then one per eventPause.
	eventBurst = 5
	eventPause = 30 * time.Second
	// mostLimits bounds how many pools and reasons are remembered.
	mostLimits = 10_000
)

// eventLimit limits the Events of each pool and reason. The zero value is ready. It is safe
// for concurrent use.
type eventLimit struct {
	mu      sync.Mutex
	buckets map[eventKey]*bucket
}

type eventKey struct {
	pool   types.UID
	reason string
}

// bucket holds how many Events may be sent as of a time.
type bucket struct {
	left float64
	at   time.Time
}

// allow reports whether one more Event may be sent, and counts it if so.
func (t *eventLimit) allow(pool types.UID, reason string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.buckets == nil || len(t.buckets) > mostLimits {
		t.buckets = map[eventKey]*bucket{}
	}
	key := eventKey{pool, reason}
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
