package limits

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/sandlane/sandlane/routecache"
)

// How often OpenRequests looks at Envoy beside the poll.
const (
	// hitsEvery is the time between two looks at how many requests Envoy has answered by
	// itself.
	hitsEvery = 10 * time.Millisecond
	// restMin and restMax bound the rest between two looks. A look that took long is followed
	// by restFactor times as long a rest, so that Envoy's main thread has time for other work.
	restMin    = 20 * time.Millisecond
	restMax    = time.Second
	restFactor = 4
	// lookEvery is the time between two looks while little is admitted.
	lookEvery = time.Second
	// transitMax is how long an admitted request counts that Envoy does not begin. Some it
	// never does: their clients have left.
	transitMax = 500 * time.Millisecond
	// lookMax is how long Envoy may take to tell its total. A poll waits for a look.
	lookMax = 500 * time.Millisecond
	// lateMax is how long after Envoy's last answer the counts stay as they are if it answers
	// late. Meanwhile they only grow: requests may be refused that Envoy would take, which is
	// better than one namespace that takes what others need.
	lateMax = 5 * time.Second
	// betweenTries is longer than Envoy waits before it tries to connect again. Meanwhile the
	// request has no connection.
	betweenTries = 200 * time.Millisecond
)

// pruneMin is how many pools are kept though they may be gone.
const pruneMin = 1000

// OpenOptions configure an OpenRequests. Limits, Room, Total and Refresh are required.
type OpenOptions struct {
	Limits Reader
	// Room is how many requests for sandboxes Envoy takes at once.
	Room int
	// Total asks Envoy about all requests for sandboxes.
	Total func(context.Context) (Load, error)
	// Refresh asks Envoy how many each sandbox has open. It must call Looking before and
	// what that returns afterwards.
	Refresh func(context.Context) error
}

// Load is what Envoy has of requests for sandboxes. The zero value is that of one that has just
// started.
type Load struct {
	// Active have a connection to their pod, Pending wait for one.
	Active, Pending int
	// Begun counts since Envoy's start the tries that got a connection or none; it never
	// falls. Retried counts how many of them were followed by another try.
	Begun, Retried int
}

// open is how many are open.
func (l Load) open() int { return l.Active + l.Pending }

// taken is how many requests Envoy has ever begun to send.
func (l Load) taken() int { return l.Begun + l.Pending - l.Retried }

// OpenRequests counts the open requests of each namespace: those that Envoy had at the last look, and
// those that were admitted since. In all it also counts those that Envoy had not begun then. It is a manager.Runnable of every gateway. Safe for
// concurrent use.
//
// What Envoy answers by itself is counted in total alone until a look says whose it is.
// While Envoy is late, what was counted stays, for lateMax. Then, and at once if Envoy is away,
// only what was admitted since the last failure counts.
type OpenRequests struct {
	o    OpenOptions
	room int64
	// answered and withdraw are those of FastPath; nil without one.
	answered func() uint64
	withdraw func(of func(unique.Handle[routecache.Pool]) bool)

	total atomic.Int64
	// due is the total at which Envoy is to be looked at again.
	due  atomic.Int64
	wake chan struct{}
	// counts are by pool; those of one namespace are the same one. Replaced under mu.
	counts atomic.Pointer[map[unique.Handle[routecache.Pool]]*count]

	mu sync.Mutex
	// namespaces has each count once. Guarded by mu.
	namespaces map[string]*count
	// pruneAt is how many pools or namespaces are too many to keep those that have nothing
	// open. Guarded by mu.
	pruneAt int
	// looking is held during a look: two at once would both take off what was open before.
	looking sync.Mutex
	hits    uint64 // that are in total. Only Start uses it.
	transit transit
	// heard is when the last look began that Envoy answered; the time of NewOpenRequests
	// before that. Guarded by looking.
	heard time.Time
	// waiting is how many had no connection at the last look. Guarded by looking.
	waiting int64
	metrics *metrics
}

// count is a namespace's.
type count struct {
	factor int64
	open   atomic.Int64
	// over: Envoy is to answer nothing of it by itself.
	over atomic.Bool
	// spare is how many of its connections had no request at spareAt. Guarded by mu.
	spare   int
	spareAt time.Time
	_       [64]byte // keeps the next one off this one's cache line
}

// NewOpenRequests returns an OpenRequests that counts none.
func NewOpenRequests(o OpenOptions) *OpenRequests {
	x := &OpenRequests{o: o, room: int64(o.Room), wake: make(chan struct{}, 1), heard: time.Now(), namespaces: map[string]*count{}, pruneAt: pruneMin, metrics: newMetrics()}
	x.counts.Store(&map[unique.Handle[routecache.Pool]]*count{})
	x.due.Store(x.stride())
	return x
}

// FastPath tells it of an Envoy that answers requests by itself: answered returns how many so
// far, withdraw takes the routes of some pools out of what Envoy answers from. Call it before
// Start, if at all.
func (x *OpenRequests) FastPath(answered func() uint64, withdraw func(of func(unique.Handle[routecache.Pool]) bool)) {
	x.answered, x.withdraw = answered, withdraw
}

// stride is how many requests may be admitted until Envoy is looked at.
func (x *OpenRequests) stride() int64 { return max(1, x.room/4) }

// few is how many requests a namespace may have open whatever the others have: the total is late
// and too high while many requests fail to connect, and a namespace with few did not fill the
// gateway. If it is full in truth, Envoy refuses the request itself.
func (x *OpenRequests) few() int64 { return x.room / 32 }

// Open counts a request that is about to be sent to the route's pod. It returns false, and
// counts nothing, if the namespace has its share open. It takes no lock and allocates nothing
// once the pool is known.
func (x *OpenRequests) Open(r *routecache.Route) bool {
	n := x.of(r)
	total, mine := x.total.Add(1), n.open.Add(1)
	if due := x.due.Load(); total >= due {
		x.lookSoon()
	}
	if mine <= max(x.few(), n.factor*(x.room-total)) {
		return true
	}
	x.Unsent(r)
	x.lookSoon()
	return false
}

// Unsent takes back what Open has counted. It takes no lock.
func (x *OpenRequests) Unsent(r *routecache.Route) {
	x.total.Add(-1)
	x.of(r).open.Add(-1)
}

// Over reports whether Envoy is to answer nothing of the route's namespace by itself. It
// takes no lock.
func (x *OpenRequests) Over(r *routecache.Route) bool { return x.of(r).over.Load() }

func (x *OpenRequests) lookSoon() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// of returns the count of the route's namespace.
func (x *OpenRequests) of(r *routecache.Route) *count {
	if n := (*x.counts.Load())[r.Pool]; n != nil {
		return n
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.namespace(r.InPool().Namespace)
	counts := maps.Clone(*x.counts.Load())
	counts[r.Pool] = n
	x.counts.Store(&counts)
	return n
}

// namespace returns a namespace's count. mu is held.
func (x *OpenRequests) namespace(name string) *count {
	n := x.namespaces[name]
	if n == nil {
		n = &count{factor: int64(x.o.Limits.Of(name).Open)}
		x.namespaces[name] = n
	}
	return n
}

// Start looks at Envoy whenever so many requests were admitted, or answered by Envoy, that
// the counts may be far from the truth. It ends with ctx and returns nil. Call it once.
func (x *OpenRequests) Start(ctx context.Context) error {
	var hits <-chan time.Time
	if x.answered != nil {
		x.hits = x.answered()
		hit := time.NewTicker(hitsEvery)
		defer hit.Stop()
		hits = hit.C
	}
	rested := time.NewTimer(0)
	defer rested.Stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	resting, wanted := true, true
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hits:
			x.countHits()
			wanted = wanted || x.total.Load() >= x.due.Load()
		case <-x.wake:
			wanted = true
		case <-tick.C:
			wanted = true
		case <-rested.C:
			resting = false
		}
		if wanted && !resting {
			began := time.Now()
			x.look(ctx)
			wanted, resting = false, true
			rested.Reset(min(max(restMin, restFactor*time.Since(began)), restMax))
		}
	}
}

// NeedLeaderElection makes it run in every gateway.
func (x *OpenRequests) NeedLeaderElection() bool { return false }

func (x *OpenRequests) countHits() {
	now := x.answered()
	if now > x.hits {
		x.total.Add(int64(now - x.hits))
	}
	x.hits = now
}

// look asks Envoy for its total, which is cheap, and for what each sandbox has open only if
// a share may bind.
func (x *OpenRequests) look(ctx context.Context) {
	x.metrics.looks.Inc()
	before := x.begin()
	total, at := x.total.Load(), time.Now()
	asking, cancel := context.WithTimeout(ctx, lookMax)
	load, err := x.o.Total(asking)
	late := asking.Err() != nil
	cancel()
	var open int64
	switch {
	case err != nil && late && at.Sub(x.heard) < lateMax:
		x.looking.Unlock()
		return
	case err != nil:
		x.waiting, x.transit = 0, transit{}
	default:
		x.heard = at
		x.waiting = int64(load.Pending + x.transit.look(int(total), load, at))
		open = int64(load.Active) + x.waiting
	}
	x.due.Store(x.total.Add(open-total) + x.stride())
	x.correct(before, func(name string, _ *count) int64 { return min(before[name], open) }) // none has more than all
	x.looking.Unlock()
	if open >= x.room/2 {
		_ = x.o.Refresh(ctx) // it logs its error itself
	}
}

// transit is how many requests were admitted that Envoy had not begun at the last look: its
// zero value is before the first one. Only look uses it.
type transit struct {
	at     time.Time
	total  int // that look has set
	load   Load
	behind int // below 0: Envoy had begun some that were admitted after the look began
}

// look takes what counted when a look began at a time, and Envoy's answer. It returns how many
// are in transit.
func (t *transit) look(total int, load Load, at time.Time) int {
	behind := 0
	if !t.at.IsZero() && load.Begun >= t.load.Begun { // else Envoy has started anew
		left := max(0, transitMax-at.Sub(t.at))
		behind = int(time.Duration(t.behind)*left/transitMax) + total - t.total - (load.taken() - t.load.taken())
	}
	n := max(0, behind)
	*t = transit{at, load.open() + n, load, behind}
	return n
}

// Looking is to be called just before Envoy is asked what each sandbox has open, and the
// function that it returns with the answer by namespace: how many requests are active, and how
// many connections have none, which are idle or being made. Without an answer, which is nil,
// the counts stay as they are.
func (x *OpenRequests) Looking() (looked func(active, spare map[string]int)) {
	before, at := x.begin(), time.Now()
	return func(active, spare map[string]int) {
		defer x.looking.Unlock()
		if active == nil {
			return
		}
		x.mu.Lock()
		for _, of := range []map[string]int{active, spare} {
			for name := range of {
				x.namespace(name)
			}
		}
		x.mu.Unlock()
		x.correct(before, func(name string, n *count) int64 {
			if now := spare[name]; now >= n.spare || at.Sub(n.spareAt) > betweenTries {
				n.spare, n.spareAt = now, at
			}
			return int64(active[name]) + min(int64(n.spare), x.waiting)
		})
	}
}

// begin returns what each namespace has open when a look begins. Envoy does not tell of whom
// the requests are that have no connection yet. The caller unlocks looking.
func (x *OpenRequests) begin() (before map[string]int64) {
	x.looking.Lock()
	x.mu.Lock()
	defer x.mu.Unlock()
	before = make(map[string]int64, len(x.namespaces))
	for name, n := range x.namespaces {
		before[name] = n.open.Load()
	}
	return before
}

// correct puts what a namespace has open now in the place of what was counted before Envoy was
// asked. looking is held; open is called with mu held.
func (x *OpenRequests) correct(before map[string]int64, open func(string, *count) int64) {
	x.mu.Lock()
	for name, n := range x.namespaces {
		n.open.Add(open(name, n) - before[name])
	}
	x.prune()
	x.mu.Unlock()
	x.judge()
}

// prune forgets the counts of pools that have nothing open, since they may be gone, once there
// are twice as many as it left the last time. A request that has just found a count that goes
// is counted for its namespace by the next look. mu is held.
func (x *OpenRequests) prune() {
	counts := *x.counts.Load()
	if max(len(counts), len(x.namespaces)) < x.pruneAt {
		return
	}
	counts = maps.Clone(counts)
	idle := func(n *count) bool { return n.open.Load() == 0 && !n.over.Load() }
	maps.DeleteFunc(x.namespaces, func(_ string, n *count) bool { return idle(n) })
	maps.DeleteFunc(counts, func(pool unique.Handle[routecache.Pool], n *count) bool {
		return x.namespaces[pool.Value().Namespace] != n
	})
	x.counts.Store(&counts)
	x.pruneAt = max(pruneMin, 2*max(len(counts), len(x.namespaces)))
}

// judge says which namespaces are over their part of the fast path: a quarter of their share,
// since what Envoy answers by itself is only counted afterwards. The flag is set before the
// routes are withdrawn, so that none is shown anew meanwhile.
func (x *OpenRequests) judge() {
	if x.withdraw == nil {
		return
	}
	free, more := x.room-x.total.Load(), false
	x.mu.Lock()
	for _, n := range x.namespaces {
		over := n.open.Load() > n.factor*free/4
		more = n.over.Swap(over) != over && over || more
	}
	x.mu.Unlock()
	if more {
		counts := *x.counts.Load()
		x.withdraw(func(pool unique.Handle[routecache.Pool]) bool {
			n := counts[pool]
			return n != nil && n.over.Load()
		})
	}
}
