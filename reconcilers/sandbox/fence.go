package sandbox

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	jitter "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// mostFenceWait bounds the wait between two attempts to reach all gateways.
const mostFenceWait = 15 * time.Second

// slotWait is about how long an end waits for one of the slots to get free: each
// is taken for FenceTimeout at most, which is a second.
const slotWait = time.Second

// fence asks all gateways once. A wait above 0 means: not yet, ask again then.
func (r *Reconciler) fence(ctx context.Context, s *v1alpha1.Sandbox, rv uint64) (time.Duration, error) {
	if s.Status.Address == "" || s.Status.FencedAt != nil {
		return 0, nil
	}
	addr, err := netip.ParseAddr(s.Status.Address)
	if err != nil {
		return 0, fmt.Errorf("the sandbox's address: %w", err)
	}
	rv, wait, done := r.fences.ask(s.Name, s.UID, rv)
	if done {
		return 0, nil
	}
	if wait > 0 {
		return wait, nil
	}
	if !r.fences.enter() {
		return jitter.Jitter(slotWait, 0.5), nil
	}
	defer r.fences.leave()
	start := time.Now()
	bounded, cancel := context.WithTimeout(ctx, r.FenceTimeout)
	defer cancel()
	err = r.Fencer.Fence(bounded, addr, rv)
	r.Metrics.fenced(time.Since(start), err)
	if err == nil {
		r.fences.acknowledged(s.Name, s.UID)
		return 0, nil
	}
	wait = r.fences.unanswered(s.Name, s.UID)
	log.FromContext(ctx).V(1).Info("the fence is not acknowledged yet", "again", wait, "cause", err.Error())
	return wait, nil
}

// fences bounds how many workers wait for gateways at a time, and remembers what
// was asked for: gateways that acknowledged a fence are not asked for the same
// one again. It is safe for concurrent use.
type fences struct {
	clock clock.PassiveClock
	slots chan struct{}

	mu   sync.Mutex
	open map[string]*openFence
}

// openFence is a fence that was asked for and whose Sandbox is not Ended yet, as
// far as the cache shows. done: all gateways have acknowledged it.
type openFence struct {
	of       types.UID
	rv       uint64
	attempts int
	next     time.Time
	done     bool
}

func newFences(c clock.PassiveClock, slots int) *fences {
	return &fences{clock: c, slots: make(chan struct{}, max(slots, 1)), open: map[string]*openFence{}}
}

// enter takes a slot if one is free; then call leave.
func (f *fences) enter() bool {
	select {
	case f.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

func (f *fences) leave() { <-f.slots }

// ask returns the resourceVersion that this sandbox's fence was first asked for
// with (a later one would be true too, but a new fence to the gateways), how long
// to wait before it is asked for again, and whether that is not needed any more.
func (f *fences) ask(id string, uid types.UID, rv uint64) (first uint64, wait time.Duration, done bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.open[id]
	if o == nil || o.of != uid {
		o = &openFence{of: uid, rv: rv}
		f.open[id] = o
	}
	if o.attempts == 0 {
		return o.rv, 0, o.done
	}
	return o.rv, o.next.Sub(f.clock.Now()), o.done
}

// look tells whether an end that got as far as its fence has anything to do: done,
// or, if wait is above 0, nothing before that, be it for the back-off or because
// no slot is free. One that was never asked for does: its pod must be stopped.
func (f *fences) look(id string, uid types.UID) (wait time.Duration, done bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.open[id]
	if o == nil || o.of != uid {
		return 0, false
	}
	if o.done {
		return 0, true
	}
	if o.attempts > 0 {
		wait = max(o.next.Sub(f.clock.Now()), 0)
	}
	if wait == 0 && len(f.slots) == cap(f.slots) {
		wait = jitter.Jitter(slotWait, 0.5)
	}
	return wait, false
}

// acknowledged notes that all gateways know.
func (f *fences) acknowledged(id string, uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.open[id]; o != nil && o.of == uid {
		o.done = true
	}
}

// unanswered notes a failed attempt and returns the wait before the next.
func (f *fences) unanswered(id string, uid types.UID) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.open[id]
	if o == nil || o.of != uid {
		return time.Second
	}
	wait := min(time.Second<<o.attempts, mostFenceWait)
	o.attempts = min(o.attempts+1, 10)
	o.next = f.clock.Now().Add(wait)
	return wait
}

func (f *fences) forget(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, id)
}
