package lastcreate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DefaultFlushInterval is the least time between two writes to one pool.
const DefaultFlushInterval = 5 * time.Second

// lastFlushTimeout bounds the flush at the stop. The others may take an interval.
const lastFlushTimeout = 2 * time.Second

// Tracker remembers creates in memory and writes them to the pools' annotations. It is
// a manager.Runnable of every gateway. All methods are safe for concurrent use but
// OnFailure and Known. On a nil Tracker Bump does nothing and Get knows nothing.
type Tracker struct {
	client   client.Client
	known    func(types.NamespacedName) (annotation string, exists bool)
	interval time.Duration
	clock    clock.WithTicker
	failed   func(pools int, err error)
	writes   *prometheus.CounterVec

	mu    sync.RWMutex
	pools map[types.NamespacedName]*record // guarded by mu; what is in a record is not
}

// record is one pool's. All but last belongs to the goroutine that flushes.
type record struct {
	last    atomic.Int64 // when the pool was last asked for a sandbox, in Unix nanoseconds
	flushed int64        // the value of last that needs no further write
	// ahead is an annotation that lay ahead when it was first seen, at seen.
	ahead string
	seen  time.Time
}

// NewTracker returns a Tracker that reads and patches pools by the client; an interval
// ≤ 0 means DefaultFlushInterval. Each flush reads every pool that was asked for since
// the last: a client that reads from the API server wants Known.
func NewTracker(c client.Client, flushInterval time.Duration) *Tracker {
	return NewTrackerForTest(c, flushInterval, clock.RealClock{})
}

// NewTrackerForTest is NewTracker with a clock.
func NewTrackerForTest(c client.Client, flushInterval time.Duration, clk clock.WithTicker) *Tracker {
	if flushInterval <= 0 {
		flushInterval = DefaultFlushInterval
	}
	return &Tracker{
		client: c, interval: flushInterval, clock: clk,
		failed: func(int, error) {}, writes: newWrites(), pools: map[types.NamespacedName]*record{},
	}
}

// OnFailure sets the function that each flush with failures calls, with the number of
// pools that were not written and the last error. The next flush tries them again. Call
// it before Start.
func (t *Tracker) OnFailure(f func(pools int, err error)) { t.failed = f }

// Known sets the function that returns the annotation of a pool, in place of a read of the
// API server; an index that watches pools has it. Call it before Start.
func (t *Tracker) Known(f func(types.NamespacedName) (annotation string, exists bool)) { t.known = f }

// Bump notes that the pool is asked for a sandbox now.
func (t *Tracker) Bump(pool types.NamespacedName) {
	if t == nil {
		return
	}
	now := t.clock.Now().UnixNano()
	t.mu.RLock()
	r := t.pools[pool]
	t.mu.RUnlock()
	if r == nil {
		r = t.add(pool)
	}
	r.last.Store(now)
}

func (t *Tracker) add(pool types.NamespacedName) *record {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.pools[pool]
	if r == nil {
		r = &record{}
		t.pools[pool] = r
	}
	return r
}

// Get returns when this process last noted a create for the pool.
func (t *Tracker) Get(pool types.NamespacedName) (time.Time, bool) {
	if t == nil {
		return time.Time{}, false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.pools[pool].time()
}

// time is when the pool was last asked for a sandbox; false if that was never, or is
// being noted for the first time.
func (r *record) time() (time.Time, bool) {
	if r == nil {
		return time.Time{}, false
	}
	last := r.last.Load()
	return time.Unix(0, last), last != 0
}

// All returns when this process last noted a create for each pool that was asked for.
func (t *Tracker) All() map[types.NamespacedName]time.Time {
	if t == nil {
		return nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make(map[types.NamespacedName]time.Time, len(t.pools))
	for pool, r := range t.pools {
		if at, ok := r.time(); ok {
			all[pool] = at
		}
	}
	return all
}

// Start flushes each interval until the context ends, and once more then, on a context
// of its own. It returns nil. Call it once.
func (t *Tracker) Start(ctx context.Context) error {
	tick := t.clock.NewTicker(t.interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C():
			t.flush(ctx, t.interval)
		case <-ctx.Done():
			t.flush(context.WithoutCancel(ctx), lastFlushTimeout)
			return nil
		}
	}
}

// NeedLeaderElection says that every gateway tracks.
func (*Tracker) NeedLeaderElection() bool { return false }
