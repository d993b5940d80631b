package sandbox

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	jitter "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// quickFence is how long an end waits for its fence before it writes down how far
	// it is.
	quickFence = 200 * time.Millisecond
	// mostFenceWait bounds the wait between two attempts to reach all gateways.
	mostFenceWait = 15 * time.Second
	// mostAsking bounds the fences that are on their way at a time. Those of a second,
	// at any rate that the API server bears, are fewer.
	mostAsking = 4096
	// noRoomWait is about how long a fence waits that finds so many on their way.
	noRoomWait = time.Second
)

// attempt asks all gateways once.
func (r *Reconciler) attempt(ctx context.Context, addr netip.Addr, rv uint64) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.FenceTimeout)
	defer cancel()
	err := r.Fencer.Fence(ctx, addr, rv)
	r.Metrics.fenced(time.Since(start), err)
	return err
}

// fences are those of ends, and of claims that a pause gave up. Each attempt is a
// goroutine of its own, which costs no worker: the Fencer puts those together that it is
// given at a time. When one is over the sandbox is looked at. It is safe for concurrent use.
//
//	none ─begin─▶ asking ─all have acknowledged─▶ done ─forget─▶ none
//	                │  ▲
//	     unanswered ▼  │ look, after 1, 2, 4 … 15 s
//	               waiting
type fences struct {
	clock   clock.PassiveClock
	attempt func(ctx context.Context, addr netip.Addr, rv uint64) error
	asks    sync.WaitGroup // attempts

	mu      sync.Mutex
	ctx     context.Context // of the attempts
	requeue func(id string)
	open    map[fenceKey]*openFence
	claims  map[string]map[string]struct{} // the claims that are open, by the sandbox's ID
	asking  int                            // attempts on their way
}

// fenceKey is what a fence is for: the end of a sandbox, or a claim of it that a pause gave
// up.
type fenceKey struct{ id, claim string }

// openFence is a fence that was asked for and whose Sandbox is not Ended yet, as
// far as the cache shows. All is guarded by fences.mu.
type openFence struct {
	of types.UID
	// addr and rv stay those that were first asked for: a later version would be true
	// too, but a new fence to the gateways.
	addr     netip.Addr
	rv       uint64
	record   record
	over     func() // nil, or called once all gateways have acknowledged it
	begun    time.Time
	asking   bool
	attempts int
	next     time.Time
	done     bool // all gateways have acknowledged it
}

func newFences(c clock.PassiveClock, attempt func(context.Context, netip.Addr, uint64) error) *fences {
	return &fences{clock: c, attempt: attempt, ctx: context.Background(), requeue: func(string) {}, open: map[fenceKey]*openFence{}, claims: map[string]map[string]struct{}{}}
}

// run is called before the workers begin: attempts end with ctx, and wake by queue.
func (f *fences) run(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ctx = ctx
	f.requeue = func(id string) { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: id}}) }
	return nil
}

// begin asks for a fence for the first time: of, addr, rv and perhaps record and over are
// set.
func (f *fences) begin(key fenceKey, o openFence) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if was := f.open[key]; was != nil && was.of == o.of {
		return
	}
	o.begun = f.clock.Now()
	f.open[key] = &o
	if key.claim != "" {
		if f.claims[key.id] == nil {
			f.claims[key.id] = map[string]struct{}{}
		}
		f.claims[key.id][key.claim] = struct{}{}
	}
	f.ask(key, &o)
}

// fenceView is how far the fence of an end has come.
type fenceView struct {
	record record
	done   bool
	age    time.Duration // since it was first asked for
	wait   time.Duration // until there is something to do, if nothing wakes before
}

// progress returns how far the fence is, and asks again if its time has come; false if
// none was begun by this process: then the end is to be carried out from its start.
func (f *fences) progress(key fenceKey, uid types.UID) (fenceView, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.open[key]
	if o == nil || o.of != uid {
		return fenceView{}, false
	}
	now := f.clock.Now()
	if !o.done && !o.asking && !o.next.After(now) {
		f.ask(key, o)
	}
	v := fenceView{record: o.record, done: o.done, age: now.Sub(o.begun), wait: mostFenceWait}
	if !o.asking {
		v.wait = o.next.Sub(now)
	}
	return v, true
}

// ask begins an attempt, if there is room. mu is held.
func (f *fences) ask(key fenceKey, o *openFence) {
	if f.asking >= mostAsking {
		o.next = f.clock.Now().Add(jitter.Jitter(noRoomWait, 0.5))
		return
	}
	f.asking++
	o.asking = true
	ctx := f.ctx
	f.asks.Go(func() {
		err := f.attempt(ctx, o.addr, o.rv)
		f.mu.Lock()
		requeue := f.requeue
		f.asking--
		o.asking = false
		over := o.over
		if err == nil {
			o.done = true
		} else {
			over = nil
			wait := min(time.Second<<o.attempts, mostFenceWait)
			o.attempts = min(o.attempts+1, 10)
			o.next = f.clock.Now().Add(wait)
			log.FromContext(ctx).V(1).Info("the fence is not acknowledged yet", "again", wait, "cause", err.Error())
		}
		f.mu.Unlock()
		if over != nil {
			over()
		}
		requeue(key.id)
	})
}

func (f *fences) forget(key fenceKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(key)
}

// forgetAll forgets all fences of a sandbox that is over: the attempts of its claims that
// are on their way count, and what they leave the sweep finds.
func (f *fences) forgetAll(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for claim := range f.claims[id] {
		f.drop(fenceKey{id, claim})
	}
	f.drop(fenceKey{id: id})
}

// drop forgets one fence. mu is held.
func (f *fences) drop(key fenceKey) {
	delete(f.open, key)
	if delete(f.claims[key.id], key.claim); len(f.claims[key.id]) == 0 {
		delete(f.claims, key.id)
	}
}
