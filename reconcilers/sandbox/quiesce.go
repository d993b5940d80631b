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
)

// Quiescer has the freezer of a sandbox's pod carry out what the sandbox's spec asks for,
// by a gateway. Safe for concurrent use.
type Quiescer interface {
	// Quiesce returns nil when that is done, controlplane.ErrMoved if the sandbox has
	// changed since, controlplane.ErrNoFreezer if its pod cannot be frozen, and
	// controlplane.ErrNotDone if a gateway has tried and failed.
	Quiesce(ctx context.Context, q controlplane.Quiesce) error
}

// quiesceWait is the pause between two tries that failed.
const quiesceWait = 2 * time.Second

// quiescePatience is how long tries may fail before an order is late. Only what gateways
// answer counts: while none answers nothing is known of the sandbox.
const quiescePatience = time.Minute

// quiets are the sandboxes whose freezers are asked. Each try is a goroutine of its own,
// which costs no worker; when it is over the sandbox is looked at. It is safe for
// concurrent use.
//
//	none ─look─▶ asking ─answered─▶ settled ─look of another generation─▶ asking
//	               │  ▲
//	        failed ▼  │ look, after 2 s
//	             waiting
type quiets struct {
	clock    clock.PassiveClock
	quiescer Quiescer // nil: nothing can be frozen

	mu     sync.Mutex // guards the rest
	ctx    context.Context
	wake   func(id string)
	open   map[string]*quiet
	asking sync.WaitGroup
}

// quiet is what became of one order. All is guarded by quiets.mu.
type quiet struct {
	of      controlplane.Quiesce
	asking  bool
	settled error // once answered: nil or ErrNoFreezer
	done    bool
	next    time.Time // of the next try
	failing time.Time // of the first try that a gateway answered and that failed
	late    bool      // one failed quiescePatience later, too
}

// outcome is what is known of an order.
type outcome struct {
	done, noFreezer bool
	late            bool          // it failed for quiescePatience
	wait            time.Duration // until there is something to do, if nothing wakes before
}

func newQuiets(c clock.PassiveClock, q Quiescer) *quiets {
	return &quiets{clock: c, quiescer: q, ctx: context.Background(), wake: func(string) {}, open: map[string]*quiet{}}
}

// run is called before the workers begin: tries end with ctx, and wake by queue.
func (x *quiets) run(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ctx = ctx
	x.wake = func(id string) { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: id}}) }
	return nil
}

// look returns whether an order was carried out, or cannot be, and gives it if that is
// not known.
func (x *quiets) look(q controlplane.Quiesce) outcome {
	if x.quiescer == nil {
		return outcome{noFreezer: true}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.open[q.SandboxID]
	if o == nil || o.of != q {
		o = &quiet{of: q}
		x.open[q.SandboxID] = o
	}
	now := x.clock.Now()
	switch {
	case o.done:
		return outcome{done: o.settled == nil, noFreezer: o.settled != nil}
	case !o.asking && !o.next.After(now):
		x.ask(o)
	}
	return outcome{late: o.late, wait: quiesceWait}
}

// ask begins a try. mu is held.
func (x *quiets) ask(o *quiet) {
	o.asking = true
	ctx := x.ctx
	x.asking.Go(func() {
		err := x.quiescer.Quiesce(ctx, o.of)
		x.mu.Lock()
		wake := x.wake
		o.asking = false
		if err == nil || errors.Is(err, controlplane.ErrNoFreezer) {
			o.done, o.settled = true, err
		} else {
			now := x.clock.Now()
			o.next = now.Add(quiesceWait)
			if errors.Is(err, controlplane.ErrNotDone) {
				if o.failing.IsZero() {
					o.failing = now
				}
				o.late = now.Sub(o.failing) >= quiescePatience
			}
		}
		x.mu.Unlock()
		wake(o.of.SandboxID)
	})
}

func (x *quiets) forget(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.open, id)
}
