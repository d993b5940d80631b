package routecache

import (
	"context"
	"fmt"
	"time"
)

// Fence drops every route to the fenced addresses that comes from an older pod
// object, refuses such routes from now on (until PodsSeen has reached the
// fence's RV, and later still to resolves that have begun by then), and waits
// for the handlers in flight.
//
// Nil is the acknowledgement: no handler will answer from such a route any
// more. An error is the context's; the routes are dropped and refused all the
// same, and the call may be repeated.
//
// # Why a fence holds
//
// Fence first refuses, then drops, then waits. A Put checks the refusals inside
// its shard's lock: either it sees the refusal, or it is done before Fence takes
// that lock and drops what was put. After the drop no Get returns the route, so
// only handlers that entered before it can still answer from it, and those are
// waited for.
//
// A Mirror shows routes to others (package fastpath: to Envoy). It is told of every
// change under the shard's lock, so that what it shows is always cached, and a fence
// waits for the readers there after it has waited for the handlers.
//
// A Fence that fails (its context ended first) has still refused and dropped;
// it has only not been acknowledged, and the caller asks again.
func (c *Cache) Fence(ctx context.Context, batch []Fence) error {
	if len(batch) == 0 {
		return nil
	}
	start := time.Now()
	f := newFences(batch, c.seed)
	c.refusals.add(f.byAddr)
	for i := range c.shards {
		c.shards[i].dropOlder(f)
	}
	if err := c.WaitFlights(ctx); err != nil {
		return fmt.Errorf("fence of %d addresses: %w", len(f.byAddr), err)
	}
	c.metrics.fence.Observe(time.Since(start).Seconds())
	return nil
}

// WaitFlights returns nil when every handler that was in flight at the call has
// left, and no reader of the mirror is about to use what it has shown before, or
// the context's error.
func (c *Cache) WaitFlights(ctx context.Context) error {
	if err := c.flights.wait(ctx); err != nil {
		return fmt.Errorf("waiting for handlers in flight: %w", err)
	}
	return c.WaitMirror(ctx)
}

// Rewind drops every route, forgets all fences and how far the pod watch has come, and
// lets nothing be cached until the next PodsSeen: the API server has gone back to an
// older state, so no resourceVersion of before compares with one of now. That PodsSeen
// must be of a consistent list that is begun after Rewind has returned: what was fenced
// before is over in such a list.
func (c *Cache) Rewind() {
	c.refusals.rewind()
	c.DropAll()
}

// PodsSeen says that the gateway's own pod watch has reached rv: every event up
// to it was applied and its consequences drawn (Invalidate). It lifts the
// refusals of fences up to rv. Cheap enough for every event.
func (c *Cache) PodsSeen(rv uint64) { c.refusals.podsSeen(rv) }
