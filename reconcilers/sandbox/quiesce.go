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

	"github.com/sandlane/sandlane/backoff"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/failpoint"
)

// Quiescer has a gateway order the freezer of a sandbox's pod to do what the sandbox's spec
// asks for. Safe for concurrent use.
type Quiescer interface {
	// Quiesce returns nil when that is done, controlplane.ErrMoved if the sandbox has
	// changed since, controlplane.ErrNoFreezer if its pod cannot be frozen, and
	// controlplane.ErrNotDone if a gateway has tried and failed.
	Quiesce(ctx context.Context, q controlplane.Quiesce) error
}

// quiesceWait is the pause after a try that failed. If the try was to keep files, each of
// which moves all of them, the pause doubles with each failure, up to mostSaveWait.
const (
	quiesceWait  = 2 * time.Second
	mostSaveWait = 5 * time.Minute
)

// quiescePatience is how long tries may fail before an order is late. Only tries that a
// gateway answered count: while none answers nothing is known of the sandbox.
const quiescePatience = time.Minute

const (
	// maxQuiesces bounds the tries under way of all sandboxes together; maxSaves bounds
	// how many of them keep files, which takes long.
	maxQuiesces = 64
	maxSaves    = 16
)

// quiets are the orders to freezers, one for each sandbox. Each try is a goroutine of its
// own, which costs no worker; after it the sandbox is queued again. At most one try for a
// sandbox is under way, and at most maxQuiesces for all; further ones wait in order. It is
// safe for concurrent use.
//
//	none ─ensure─▶ queued ─its turn─▶ asking ─answered─▶ settled
//	                 ▲                  │
//	                 └─ensure, after 2 s┘ failed; to keep files after 2, 4, 8 s … 5 min
//
// An order with another claim or generation replaces the one before, and forget removes
// that of a sandbox which ends or goes: the context of the try under way is cancelled, and
// the sandbox's next try waits until that one is over.
type quiets struct {
	clock    clock.PassiveClock
	quiescer Quiescer // nil: nothing can be frozen

	mu  sync.Mutex // guards the rest
	ctx context.Context
	// requeue has the sandbox looked at again.
	requeue func(id string)
	open    map[string]*quiet
	queue   []*quiet                      // some may have been replaced or forgotten since
	asking  map[string]context.CancelFunc // the tries under way, by sandbox
	saving  int                           // how many of them keep files
	tries   sync.WaitGroup                // the tries under way; tests wait for them
}

// quiet is one order and how far it has come. All is guarded by quiets.mu.
type quiet struct {
	of      controlplane.Quiesce
	begun   bool  // a try is queued or under way
	settled error // once answered: nil or ErrNoFreezer
	done    bool
	next    time.Time     // of the next try
	wait    time.Duration // the last pause between two tries, of an order that keeps files
	failing time.Time     // of the first try that a gateway answered and that failed
	late    bool          // a try failed quiescePatience after that one, too
}

// outcome is what is known of an order.
type outcome struct {
	done, noFreezer bool
	late            bool          // it failed for quiescePatience
	wait            time.Duration // until there is something to do, unless the sandbox is queued before
}

func newQuiets(c clock.PassiveClock, q Quiescer) *quiets {
	return &quiets{
		clock: c, quiescer: q, ctx: context.Background(), requeue: func(string) {},
		open: map[string]*quiet{}, asking: map[string]context.CancelFunc{},
	}
}

// run is called before the workers begin: tries end with ctx, and then put their sandbox
// into queue.
func (x *quiets) run(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ctx = ctx
	x.requeue = func(id string) { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: id}}) }
	return nil
}

// ensure returns what is known of an order, and queues a try if it is neither carried out
// nor known to be impossible.
func (x *quiets) ensure(q controlplane.Quiesce) outcome {
	if x.quiescer == nil {
		return outcome{noFreezer: true}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.open[q.SandboxID]
	if o == nil || o.of != q {
		x.cancel(q.SandboxID)
		o = &quiet{of: q}
		x.open[q.SandboxID] = o
	}
	wait := o.next.Sub(x.clock.Now())
	switch {
	case o.done:
		return outcome{done: o.settled == nil, noFreezer: o.settled != nil}
	case o.begun || wait <= 0: // the try queues the sandbox when it is over
		if !o.begun {
			o.begun = true
			x.queue = append(x.queue, o)
			x.next()
		}
		return outcome{late: o.late}
	}
	return outcome{late: o.late, wait: wait}
}

// next begins the tries whose turn it is. mu is held.
func (x *quiets) next() {
	var later []*quiet
	for len(x.queue) > 0 && len(x.asking) < maxQuiesces {
		o := x.queue[0]
		x.queue = x.queue[1:]
		switch {
		case x.open[o.of.SandboxID] != o: // replaced or forgotten
		case x.asking[o.of.SandboxID] != nil, // a try for an earlier order is not over
			o.of.Saves && x.saving == maxSaves:
			later = append(later, o)
		default:
			if o.of.Saves {
				x.saving++
			}
			ctx, cancel := context.WithCancel(x.ctx)
			x.asking[o.of.SandboxID] = cancel
			x.tries.Go(func() { x.try(ctx, o) })
		}
	}
	x.queue = append(later, x.queue...)
}

// try gives the order once, and notes the answer.
func (x *quiets) try(ctx context.Context, o *quiet) {
	err := x.quiescer.Quiesce(ctx, o.of)
	if err == nil {
		failpoint.Hit("sandbox/quiesced") // the freezer has answered, the status does not say so
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cancel(o.of.SandboxID)
	delete(x.asking, o.of.SandboxID)
	if o.of.Saves {
		x.saving--
	}
	o.begun = false
	switch now := x.clock.Now(); {
	case err == nil, errors.Is(err, controlplane.ErrNoFreezer):
		o.done, o.settled = true, err
	case errors.Is(err, controlplane.ErrNotDone):
		if o.failing.IsZero() {
			o.failing = now
		}
		o.late = now.Sub(o.failing) >= quiescePatience
		fallthrough
	default:
		wait := quiesceWait
		if o.of.Saves {
			o.wait = backoff.Next(o.wait, quiesceWait, mostSaveWait)
			wait = o.wait
		}
		o.next = now.Add(wait)
	}
	x.next()
	if x.open[o.of.SandboxID] == o {
		x.requeue(o.of.SandboxID)
	}
}

// cancel ends the try under way for a sandbox, if there is one. mu is held.
func (x *quiets) cancel(id string) {
	if cancel := x.asking[id]; cancel != nil {
		cancel()
	}
}

func (x *quiets) forget(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cancel(id)
	delete(x.open, id)
}
