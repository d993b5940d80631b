package sandbox

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	jitter "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlane/sandlane/backoff"
)

const (
	// quickFence is how long an end waits for its fence before it writes status Ending.
	quickFence = 200 * time.Millisecond
	// mostFenceWait bounds the wait between two attempts to reach all gateways.
	mostFenceWait = 15 * time.Second
	// mostAsking bounds the attempts under way at a time. An API server bears fewer ends
	// a second than that.
	mostAsking = 4096
	// noRoomWait is about how long a fence waits when so many attempts are under way.
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

// fences are the fences of ends, and of claims that a pause gave up. Each attempt is a
// goroutine of its own, which costs no worker: the Fencer sends those together that it is
// given at a time. After an attempt the sandbox is queued again. It is safe for concurrent
// use.
//
//	none ─begin─▶ asking ─all have acknowledged─▶ done ─forget─▶ none
//	                │  ▲
//	     unanswered ▼  │ progress, after 1, 2, 4 … 15 s
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
	// addr and rv stay as they were in the first attempt: a later version would be right
	// too, but would be a new fence to the gateways.
	addr   netip.Addr
	rv     uint64
	record record
	over   func() // nil, or called once all gateways have acknowledged it
	begun  time.Time
	asking bool
	pause  time.Duration // the last one between two attempts
	next   time.Time
	done   bool // all gateways have acknowledged it
}

func newFences(c clock.PassiveClock, attempt func(context.Context, netip.Addr, uint64) error) *fences {
	return &fences{clock: c, attempt: attempt, ctx: context.Background(), requeue: func(string) {}, open: map[fenceKey]*openFence{}, claims: map[string]map[string]struct{}{}}
}

// run is called before the workers begin: attempts end with ctx, and then put their
// sandbox into queue.
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
	wait   time.Duration // until there is something to do, unless the sandbox is queued before
}

// progress returns how far the fence has come, and begins the next attempt if it is due.
// It returns false if this process has begun none: then the end is carried out from its
// start.
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
			o.pause = backoff.Next(o.pause, time.Second, mostFenceWait)
			o.next = f.clock.Now().Add(o.pause)
			log.FromContext(ctx).V(1).Info("the fence is not acknowledged yet", "again", o.pause, "cause", err.Error())
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

// former has the gateways that have not answered yet asked again about the sandbox's former
// claims. wait is until there is something to do; 0 if no fence of one is open.
func (f *fences) former(id string, uid types.UID) (wait time.Duration) {
	f.mu.Lock()
	claims := slices.Collect(maps.Keys(f.claims[id]))
	f.mu.Unlock()
	for _, claim := range claims {
		if v, open := f.progress(fenceKey{id, claim}, uid); open {
			wait = sooner(wait, max(v.wait, retrySoon))
		}
	}
	return wait
}

// forgetAll forgets all fences of a sandbox that is gone. Attempts for its claims that
// are under way still count, and the sweep finishes what they leave.
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
