package routecache

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
)

// flightStripes is the number of counters over which the handlers of one phase spread,
// so that they do not contend for a cache line. A power of two.
const flightStripes = 16

// flights counts the handlers in flight and waits for those of the past, with
// two phases and no lock (the scheme of Linux's sleepable RCU). A handler counts
// itself in the current phase. A waiter waits until the other phase is empty,
// makes it the current one, and waits until the one before is empty: every
// handler that was in flight when the wait began has then left, and new handlers
// cannot prolong it.
//
// The first of the two waits is needed: a handler may read the phase, be
// overtaken by a whole wait, and then count itself in what is by now the other
// phase.
type flights struct {
	phase  atomic.Uint32
	counts [2][flightStripes]flightCount

	// turn is held by the waiter at work. started and completed number the waits;
	// they change only under turn. A wait that gave up has no completed number.
	turn      chan struct{}
	started   atomic.Uint64
	completed atomic.Uint64
	// waiting asks handlers that leave a counter empty to say so on emptied.
	waiting atomic.Bool
	emptied chan struct{}
}

type flightCount struct {
	n atomic.Int64
	_ [56]byte // one a cache line
}

// Flight is a handler in flight. Leave ends it.
type Flight struct {
	flights *flights
	count   *atomic.Int64
}

func (f *flights) init() {
	f.turn = make(chan struct{}, 1)
	f.emptied = make(chan struct{}, 1)
}

// Enter puts a handler in flight: from before its Get until its answer is sent.
// A handler that waits, for a read, a claim or a client, must not be in flight:
// fences wait for it. Enter takes no lock and does not allocate.
func (c *Cache) Enter() Flight { return c.flights.enter(c.flights.phase.Load()) }

func (f *flights) enter(phase uint32) Flight {
	n := &f.counts[phase&1][rand.Uint32()%flightStripes].n
	n.Add(1)
	return Flight{flights: f, count: n}
}

// Leave ends the flight. Call it once.
func (t Flight) Leave() {
	if t.count.Add(-1) == 0 && t.flights.waiting.Load() {
		select {
		case t.flights.emptied <- struct{}{}:
		default:
		}
	}
}

// wait returns nil when every handler that was in flight at the call has left,
// or the context's error. Waits that are called during another share the next.
func (f *flights) wait(ctx context.Context) error {
	need := f.started.Load() + 1
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if f.completed.Load() >= need {
		return nil
	}
	number := f.started.Add(1)
	f.waiting.Store(true)
	defer f.waiting.Store(false)
	current := f.phase.Load()
	if err := f.awaitEmpty(ctx, current+1); err != nil {
		return err
	}
	f.phase.Store(current + 1)
	if err := f.awaitEmpty(ctx, current); err != nil {
		return err
	}
	f.completed.Store(number)
	return nil
}

// awaitEmpty waits until each of the phase's counters has been empty once. Under turn.
func (f *flights) awaitEmpty(ctx context.Context, phase uint32) error {
	for i := range f.counts[phase&1] {
		for f.counts[phase&1][i].n.Load() != 0 {
			select {
			case <-f.emptied:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// inFlight returns the number of handlers in flight, for metrics.
func (f *flights) inFlight() int64 {
	var n int64
	for e := range f.counts {
		for i := range f.counts[e] {
			n += f.counts[e][i].n.Load()
		}
	}
	return n
}
