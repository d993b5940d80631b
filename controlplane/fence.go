package controlplane

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/sandlane/sandlane/controlplane/controlplanepb"
	"github.com/sandlane/sandlane/failpoint"
)

const (
	// forgetAfter is how long a fence that some gateway still owes is remembered after the
	// last call of Fence for it. A later call asks all gateways again.
	forgetAfter = time.Hour
	// forgetSettled is the same time for a settled fence: longer than the pause (15 s at
	// most) before a caller that stopped waiting calls Fence again.
	forgetSettled = 2 * time.Minute
	// forgetEvery is the time between two searches of Client.pending for such fences.
	forgetEvery = 10 * time.Second
	// lateCalls is for how many CallTimeouts a gateway may acknowledge fences. Their round
	// waits for one; a later answer counts for the next round, and its gateway is not
	// silent.
	lateCalls = revokeAfterMisses
)

type fenceKey struct {
	addr netip.Addr
	rv   uint64
}

// pendingFence is a fence that was asked for. Between two requests it stays in
// Client.pending, so that what was settled is not asked again.
type pendingFence struct {
	key   fenceKey
	first time.Time // when it was first asked for
	asked time.Time // when it was last asked for; guarded by Client.mu
	// settled: every gateway has acknowledged it, or need not. It is remembered, since the caller may
	// have stopped waiting and ask again. Guarded by Client.mu.
	settled bool
	// owed holds the gateways that have not settled it, by name, with the holder
	// that was noted. Nil until the first live list. Only the round uses it.
	owed map[string]Holder
	// restores is how often the API server had gone back to an older state before the list
	// that owed is of. Only the round uses it.
	restores int
}

// silentGateway is what the log says of a call that a gateway did not acknowledge.
const silentGateway = "gateway did not acknowledge a fence"

// ask is one call to a gateway for what it owes of a round's fences.
type ask struct {
	gateway  Gateway
	owed     []*pendingFence
	noted    []Holder // of each of owed, as it was when the call was sent
	restores []int    // the same
	// done: it was answered before its round ended, with err; late: not so. Guarded by
	// Client.mu until the round has ended.
	done, late bool
	err        error
	level      slog.Level // of what the log says if the gateway did not acknowledge
}

// waiter is one call of Fence that waits for a round.
type waiter struct {
	fence *pendingFence
	done  chan error // holds one
}

// Fence tells every gateway that whatever pod objects older than rv say about
// the address is over. Nil: each has acknowledged or cannot route to it any
// more. *UnansweredError: call again later with the same arguments; what was
// acknowledged is remembered. Any other error says that the gateways are not
// known, or that the context ended.
//
// What ends the address's claim must stand in the API before the call. Calls
// made while a round is on its way share the next one. A call takes two rounds
// at most: a list of leases and CallTimeout each.
//
// A gateway owes a fence from the first live list made after Fence was called until it
// settles the fence in one of the ways below. A gateway that joins later has listed
// pods after the end was written, and owes nothing.
//
// A gateway that owes a fence settles it by
//
//   - acknowledging it, under the holder that was noted or a newer epoch of the
//     same instance (the same process, thus the same route cache);
//   - showing a newer holder of its own making in its lease: it dropped its
//     routes before it wrote that, and has listed since;
//   - a clean stop;
//   - the end of its pod, as the kubelet has confirmed it (podOver);
//   - the end of its lease.
//
// If a gateway does not acknowledge while others do, the controller overwrites its holder
// ("revoked:" before the old one). A gateway that reaches the API server and not the
// controller then rejoins, which settles what it owes. It serves no request for a moment, so
// this is done to few gateways at a time; the fence stays open meanwhile (see revocations).
func (c *Client) Fence(ctx context.Context, addr netip.Addr, rv uint64) error {
	done := make(chan error, 1)
	if err := c.enqueue(fenceKey{addr.Unmap(), rv}, done); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("fencing %s: %w", addr, ctx.Err())
	}
}

func (c *Client) enqueue(key fenceKey, done chan error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	p, ok := c.pending[key]
	if !ok {
		p = &pendingFence{key: key, first: time.Now()}
		c.pending[key] = p
	}
	p.asked = time.Now()
	if p.settled {
		done <- nil
		return nil
	}
	c.waiting = append(c.waiting, waiter{p, done})
	if !c.running {
		c.running = true
		c.rounds.Go(c.run)
	}
	return nil
}

// run makes rounds until no fence is waited for.
func (c *Client) run() {
	for {
		c.mu.Lock()
		waiters := c.waiting
		c.waiting = nil
		if len(waiters) == 0 {
			c.running = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		c.round(waiters)
	}
}

// round asks each gateway for what it owes of the waiters' fences, and tells
// the waiters.
func (c *Client) round(waiters []waiter) {
	c.o.Metrics.rounds.Inc()
	restores := c.o.Directory.restoreCount()
	gateways, err := c.list(c.ctx)
	if err != nil {
		for _, w := range waiters {
			w.done <- fmt.Errorf("fencing %s: %w", w.fence.key.addr, err)
		}
		return
	}
	gateways = fencing(gateways)
	c.revocations.listed(gateways)
	c.takeLate()
	fences := make(map[*pendingFence]bool, len(waiters))
	for _, w := range waiters {
		if c.o.Directory.restoreCount() != w.fence.restores {
			w.fence.owed = nil // a holder of the past may come after one that was noted
		}
		w.fence.note(gateways, restores)
		fences[w.fence] = true
	}
	c.askAll(gateways, fences)
	c.settle(fences)
	for _, w := range waiters {
		w.done <- w.fence.result()
	}
	c.revoke(gateways)
}

// askAll asks each gateway for what it owes of the fences, and takes in what they
// acknowledge within CallTimeout. What they acknowledge later the next round takes in.
func (c *Client) askAll(gateways []Gateway, fences map[*pendingFence]bool) {
	asks := make([]*ask, 0, len(gateways))
	var silent, others bool // which of the gateways owe anything
	for _, g := range gateways {
		a := &ask{gateway: g}
		for f := range fences {
			if noted, ok := f.owed[g.Name]; ok {
				a.owed, a.noted, a.restores = append(a.owed, f), append(a.noted, noted), append(a.restores, f.restores)
			}
		}
		if len(a.owed) > 0 {
			isSilent := c.revocations.silent(g.Name)
			silent, others = silent || isSilent, others || !isSilent
		}
		asks = append(asks, a)
	}
	// Where only silent gateways owe anything all others are called with no fences, to
	// learn whether the controller reaches any gateway.
	if probe := silent && !others; !probe {
		asks = slices.DeleteFunc(asks, func(a *ask) bool { return len(a.owed) == 0 })
	}
	sent, answered := time.Now(), make(chan struct{}, len(asks))
	for _, a := range asks {
		c.rounds.Go(func() {
			c.answer(a, c.send(a.gateway, a.owed))
			answered <- struct{}{}
		})
	}
	over := time.NewTimer(c.o.CallTimeout)
	defer over.Stop()
waiting:
	for range asks {
		select {
		case <-answered:
		case <-over.C:
			break waiting
		}
	}
	c.unanswered(asks, sent)
}

// answer takes in what came of a call.
func (c *Client) answer(a *ask, err error) {
	if err == nil {
		failpoint.Hit("controlplane/acknowledged") // one gateway has acknowledged, others may not have
		c.revocations.acknowledged(a.gateway)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !a.late:
		a.done, a.err = true, err
	case err == nil:
		c.late = append(c.late, a)
	default: // only now it is known why
		c.o.Log.Log(c.ctx, a.level, silentGateway, "gateway", a.gateway.Name, "holder", a.gateway.Holder.String(), "error", err)
	}
}

// unanswered ends the wait for the calls of a round that were sent at a time: it takes in what
// the gateways have acknowledged, and notes the other calls as missed.
func (c *Client) unanswered(asks []*ask, sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range asks {
		if a.done && a.err == nil {
			a.settle()
			continue
		}
		c.o.Metrics.unanswered.Inc()
		a.level = slog.LevelDebug
		if c.revocations.missed(a.gateway, sent) {
			a.level = slog.LevelWarn
		}
		if a.late = !a.done; a.done {
			c.o.Log.Log(c.ctx, a.level, silentGateway, "gateway", a.gateway.Name, "holder", a.gateway.Holder.String(), "error", a.err)
		}
	}
}

// takeLate takes in what was acknowledged after its round.
func (c *Client) takeLate() {
	c.mu.Lock()
	late := c.late
	c.late = nil
	c.mu.Unlock()
	for _, a := range late {
		a.settle()
	}
}

// settle takes in that the gateway has acknowledged the call's fences: those that are still
// owed as they were when it was sent.
func (a *ask) settle() {
	for i, f := range a.owed {
		if noted, owes := f.owed[a.gateway.Name]; owes && noted == a.noted[i] && f.restores == a.restores[i] {
			delete(f.owed, a.gateway.Name)
		}
	}
}

// revoke overwrites the holders of the gateways that are to be revoked.
func (c *Client) revoke(gateways []Gateway) {
	if c.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.o.CallTimeout)
	defer cancel()
	var writing sync.WaitGroup
	for _, g := range c.revocations.due(gateways) {
		writing.Go(func() {
			c.o.Log.Warn("gateway acknowledges no fence while others do: overwriting its lease's holder", "gateway", g.Name, "holder", g.Holder.String())
			if err := c.o.Directory.Revoke(ctx, g); err != nil {
				c.o.Log.Warn("revoking a gateway's lease failed", "gateway", g.Name, "error", err)
			}
		})
	}
	writing.Wait()
}

// note takes in a live list. The gateways of the first list owe the fence, and so do those
// of the first list after the API server went back. One that a
// later list lacks, or shows with a newer holder of its own making, owes it no longer.
func (f *pendingFence) note(gateways []Gateway, restores int) {
	if f.owed == nil {
		f.restores = restores
		f.owed = make(map[string]Holder, len(gateways))
		for _, g := range gateways {
			f.owed[g.Name] = g.Holder
		}
		return
	}
	listed := make(map[string]Holder, len(gateways))
	for _, g := range gateways {
		listed[g.Name] = g.Holder
	}
	for name, noted := range f.owed {
		switch h, ok := listed[name]; {
		case !ok:
			delete(f.owed, name)
		case noted.Instance == "":
			f.owed[name] = h // known now; its lease may be of a backup
		case h.succeeds(noted):
			delete(f.owed, name)
		}
	}
}

func (f *pendingFence) result() error {
	if len(f.owed) == 0 {
		return nil
	}
	e := &UnansweredError{}
	for name := range f.owed {
		e.Gateways = append(e.Gateways, name)
	}
	sort.Strings(e.Gateways)
	return e
}

// settle notes the fences that no gateway has to acknowledge any more, and forgets
// those that have not been asked for in a long time.
func (c *Client) settle(fences map[*pendingFence]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for f := range fences {
		// A waiter for the next round may hold f still: it finds nothing owed, and
		// rightly so, since the end stood before f was first asked for.
		if len(f.owed) == 0 && !f.settled {
			f.settled = true
			c.o.Metrics.fenced(time.Since(f.first))
		}
	}
	now := time.Now()
	if now.Sub(c.searched) < forgetEvery {
		return
	}
	c.searched = now
	for key, f := range c.pending {
		if quiet := now.Sub(f.asked); quiet > forgetAfter || f.settled && quiet > forgetSettled {
			delete(c.pending, key)
		}
	}
}

// send sends the fences to one gateway. Nil: it acknowledged all.
func (c *Client) send(g Gateway, owed []*pendingFence) error {
	stub, err := c.gateway(g)
	if err != nil {
		return err
	}
	request := &controlplanepb.FenceRequest{Fences: make([]*controlplanepb.Fence, len(owed))}
	for i, f := range owed {
		request.Fences[i] = &controlplanepb.Fence{Address: f.key.addr.AsSlice(), ResourceVersion: f.key.rv}
	}
	ctx, cancel := context.WithTimeout(c.ctx, lateCalls*c.o.CallTimeout)
	defer cancel()
	r, err := stub.Fence(ctx, request)
	if err != nil {
		return err
	}
	return g.answered(r.GetHolder())
}
