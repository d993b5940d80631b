package sandbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/kubeclient/backoff"
)

// PauseEnforcer makes a gateway order the freezer of a sandbox's pod to do what the sandbox's
// spec asks for. Safe for concurrent use.
type PauseEnforcer interface {
	// EnforcePause returns nil when the order is carried out, writes.ErrStale if the sandbox
	// has changed since, controlplane.ErrNoFreezer if its pod cannot be frozen,
	// controlplane.ErrNotDone if the freezer has refused, and controlplane.ErrNotSaved if the
	// sandbox is frozen and its files could not be kept. Any other error says nothing about
	// the freezer.
	EnforcePause(ctx context.Context, q controlplane.EnforcePause) error
}

// enforcePauseWait is the delay after a try that failed. After one that nothing answered it doubles
// each time, up to maxEnforcePauseWait, since such a try takes ten seconds.
// A try that keeps files transfers all of them, so its delay doubles too, with each failure;
// and its first try has a delay, since the gateway that was asked for the pause is keeping them already. Without
// files the first try is made at once: only its answer tells the controller that the
// processes are stopped.
const (
	enforcePauseWait    = 2 * time.Second
	maxEnforcePauseWait = 5 * time.Minute
)

// enforcePausePatience is how long all tries must have failed, and lateRefusals how many, before an
// order is late. A try of which it is not known whether the freezer has failed breaks the
// row: the pod was silent, or no gateway could ask it. After enforcePausePatience of such tries
// alone an order is unanswered, which ends nothing.
const (
	enforcePausePatience = time.Minute
	lateRefusals         = 3
)

const (
	// maxPauseOrders bounds the tries under way for all sandboxes together; maxSaves bounds
	// how many of these keep files, which takes long, and maxSilent how many are of orders
	// whose last try nothing answered, so that these leave room for the others.
	maxPauseOrders = 64
	maxSaves       = 16
	maxSilent      = 16
)

// freezerOrders are the orders to freezers, at most one for each sandbox. Each try is a
// goroutine of its own, so that it keeps no worker; after it the sandbox is queued again. At
// most one try for a sandbox is under way, and at most maxPauseOrders for all; further ones wait
// for their turn. It is safe for concurrent use.
//
//	none ─ensure─▶ queued ─its turn─▶ asking ─answered─▶ settled
//	  │              ▲                  │
//	  │              ├─ensure, after 2 s┘ failed; unanswered or to keep files after 2, 4, 8 s … 5 min
//	  └─to keep files┘ after 2 s
//
// An order with another claim or pauseOrder replaces the order before it, and forget removes
// the order of a sandbox that ends or is gone. Both cancel the context of the try under way;
// the sandbox's next try waits until that try is over.
type freezerOrders struct {
	clock         clock.PassiveClock
	pauseEnforcer PauseEnforcer // nil: nothing can be frozen

	mu  sync.Mutex // guards the rest
	ctx context.Context
	// requeue queues the sandbox.
	requeue func(id string)
	open    map[string]*freezerOrder // by sandbox
	queue   turns
	asking  map[string]context.CancelFunc // the tries under way, by sandbox
	saving  int                           // how many of them keep files
	silent  int                           // how many of them are of orders that were unanswered
	tries   sync.WaitGroup                // the tries under way; tests wait for them
}

// freezerOrder is one order and how far it has come. All is guarded by freezerOrders.mu.
type freezerOrder struct {
	of      controlplane.EnforcePause
	begun   bool          // a try is to begin or under way
	queued  bool          // it is in freezerOrders.queue
	done    bool          // the freezer has answered, or there is none
	settled error         // once done: nil or ErrNoFreezer
	next    time.Time     // of the next try
	wait    time.Duration // the last delay that was doubled; 0 begins anew
	refused row           // of the last tries, those that failed
	unknown row           // of the last tries, those of which that is not known
	failed  row           // of both kinds
	late    bool          // tries failed lateRefusals times in a row, for enforcePausePatience
	frozen  bool          // the freezer has carried it out, and the files could not be kept
}

// row counts tries in a row with the same kind of outcome.
type row struct {
	tries int
	since time.Time // of the first
	last  time.Time
}

func (r *row) add(now time.Time) {
	if r.tries == 0 {
		r.since = now
	}
	r.tries++
	r.last = now
}

// lasts reports whether the row is enforcePausePatience long.
func (r *row) lasts() bool { return r.tries > 0 && r.last.Sub(r.since) >= enforcePausePatience }

// outcome is how far an order has come.
type outcome struct {
	done, noFreezer bool
	late            bool          // the freezer has refused, in a row and for enforcePausePatience
	unanswered      bool          // nothing is known of the freezer for enforcePausePatience
	frozen          bool          // of an order that keeps files: the freezer has carried its part out
	wait            time.Duration // until ensure is to be called again, unless the sandbox is queued before
}

func newFreezerOrders(c clock.PassiveClock, q PauseEnforcer) *freezerOrders {
	return &freezerOrders{
		clock: c, pauseEnforcer: q, ctx: context.Background(), requeue: func(string) {},
		open: map[string]*freezerOrder{}, asking: map[string]context.CancelFunc{},
	}
}

// run sets the context with which tries end, and the queue into which a try puts its sandbox
// when it is over. It is called before the workers begin.
func (x *freezerOrders) run(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ctx = ctx
	x.requeue = func(id string) { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: id}}) }
	return nil
}

// ensure returns how far an order has come, and queues a try if the order is neither carried
// out nor known to be impossible.
func (x *freezerOrders) ensure(q controlplane.EnforcePause) outcome {
	if x.pauseEnforcer == nil {
		return outcome{noFreezer: true}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.open[q.SandboxID]
	if o == nil || o.of != q {
		x.cancel(q.SandboxID)
		o = &freezerOrder{of: q}
		if q.Saves {
			o.next = x.clock.Now().Add(enforcePauseWait)
		}
		x.open[q.SandboxID] = o
	}
	wait := o.next.Sub(x.clock.Now())
	switch {
	case o.done:
		return outcome{done: o.settled == nil, noFreezer: o.settled != nil, frozen: o.of.Saves && o.settled == nil}
	case o.begun || wait <= 0: // the try queues the sandbox when it is over
		if !o.begun {
			o.begun = true
			x.queue.push(o)
			x.next()
		}
		wait = 0
	}
	return outcome{late: o.late, unanswered: o.unknown.lasts(), frozen: o.frozen, wait: wait}
}

// silentFor returns how long all tries of an order have failed, if nothing is known of the
// freezer since the last one; 0 otherwise.
func (x *freezerOrders) silentFor(q controlplane.EnforcePause) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.open[q.SandboxID]
	if o == nil || o.of != q || o.unknown.tries == 0 {
		return 0
	}
	return o.failed.last.Sub(o.failed.since)
}

// next begins the tries whose turn it is. mu is held.
func (x *freezerOrders) next() {
	for len(x.asking) < maxPauseOrders {
		full := 0
		if x.saving == maxSaves {
			full |= boundSaves
		}
		if x.silent == maxSilent {
			full |= boundSilent
		}
		o := x.queue.pop(full)
		switch {
		case o == nil:
			return
		case x.open[o.of.SandboxID] != o: // replaced or forgotten
			continue
		case x.asking[o.of.SandboxID] != nil: // a try for an earlier order is not over: its end queues this one
			continue
		}
		if o.of.Saves {
			x.saving++
		}
		silent := o.unknown.tries > 0
		if silent {
			x.silent++
		}
		ctx, cancel := context.WithCancel(x.ctx)
		x.asking[o.of.SandboxID] = cancel
		x.tries.Go(func() { x.try(ctx, o, silent) })
	}
}

// try sends the order once, and notes the answer. silent says that the last try was unanswered.
func (x *freezerOrders) try(ctx context.Context, o *freezerOrder, silent bool) {
	err := x.pauseEnforcer.EnforcePause(ctx, o.of)
	if err == nil {
		failpoint.Hit("sandbox/enforced") // the freezer has answered, the status does not say so yet
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cancel(o.of.SandboxID)
	delete(x.asking, o.of.SandboxID)
	if o.of.Saves {
		x.saving--
	}
	if silent {
		x.silent--
	}
	o.begun = false
	switch now := x.clock.Now(); {
	case err == nil, errors.Is(err, controlplane.ErrNoFreezer):
		o.done, o.settled = true, err
	case errors.Is(err, controlplane.ErrNotDone), errors.Is(err, controlplane.ErrNotSaved):
		o.frozen = o.frozen || errors.Is(err, controlplane.ErrNotSaved)
		o.refused.add(now)
		o.failed.add(now)
		o.unknown = row{}
		o.late = o.late || o.refused.tries >= lateRefusals && o.refused.lasts()
		o.postpone(now)
	default:
		o.unknown.add(now)
		o.failed.add(now)
		o.refused = row{}
		o.postpone(now)
	}
	if later := x.open[o.of.SandboxID]; later != nil && later.begun && !later.queued {
		x.queue.push(later) // its turn came during this try
	}
	x.next()
	if x.open[o.of.SandboxID] == o {
		x.requeue(o.of.SandboxID)
	}
}

// postpone sets when the next try is made after one that failed now.
func (o *freezerOrder) postpone(now time.Time) {
	if !o.of.Saves && o.unknown.tries <= 1 {
		o.wait = 0 // it was refused, or is unanswered for the first time
	}
	o.wait = backoff.Next(o.wait, enforcePauseWait, maxEnforcePauseWait)
	o.next = now.Add(o.wait)
}

// cancel cancels the try under way for a sandbox, if there is one. mu is held.
func (x *freezerOrders) cancel(id string) {
	if cancel := x.asking[id]; cancel != nil {
		cancel()
	}
}

// again has an order that was settled begin anew, with its first try after enforcePauseWait.
func (x *freezerOrders) again(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if o := x.open[id]; o != nil && o.done {
		x.open[id] = &freezerOrder{of: o.of, next: x.clock.Now().Add(enforcePauseWait)}
	}
}

func (x *freezerOrders) forget(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cancel(id)
	delete(x.open, id)
}
