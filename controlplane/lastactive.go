package controlplane

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/sandlane/sandlane/controlplane/controlplanepb"
)

// activity holds the gateways' answers about use.
type activity struct {
	polling sync.Mutex // held during a poll: cursors only move forward

	mu sync.Mutex
	// latest is when each claim was last in use, by this process's clock. An age
	// counts from when the answer arrived, so that a time is rather too late.
	latest map[activityKey]time.Time // guarded by mu
	// seen is since when this controller, or one before it, has seen each claim run;
	// guarded by mu.
	seen map[activityKey]sight
	// cursors says where the next poll of a gateway begins, by lease name.
	cursors map[string]cursor // guarded by mu
	// began is the first poll, or the floor of the controller before this one; guarded by mu.
	began time.Time
	// lost is when a source was replaced that had not told all; guarded by mu.
	lost time.Time
	memory
}

type activityKey struct{ id, claim string }

type cursor struct {
	source string
	value  uint64
	final  bool // this source tells no more
}

func (a *activity) init() {
	a.latest, a.seen, a.cursors = map[activityKey]time.Time{}, map[activityKey]sight{}, map[string]cursor{}
	a.heard, a.untold = map[string]heard{}, map[activityKey]struct{}{}
}

// Poll asks every gateway what was in use since it was last asked; LastActive tells
// what has been heard. It fails with *UnansweredError if any gateway did not
// answer, or does not know: then any sandbox may be in use.
func (c *Client) Poll(ctx context.Context) error {
	a := &c.activity
	a.polling.Lock()
	defer a.polling.Unlock()
	a.mu.Lock()
	if a.began.IsZero() {
		a.began = time.Now()
	}
	a.mu.Unlock()

	gateways, err := c.list(ctx)
	if err != nil {
		return fmt.Errorf("asking what is in use: %w", err)
	}
	var asking sync.WaitGroup
	errs := make([]error, len(gateways))
	for i, g := range gateways {
		asking.Go(func() { errs[i] = c.pollOne(ctx, g, i, len(gateways)) })
	}
	asking.Wait()
	a.forgetCursors(gateways)
	var unanswered []string
	for i, err := range errs {
		if err != nil {
			c.o.Metrics.unanswered.Inc()
			c.o.Log.Debug("gateway did not say what is in use", "gateway", gateways[i].Name, "error", err)
			unanswered = append(unanswered, gateways[i].Name)
		}
	}
	if len(unanswered) == 0 {
		a.settle(gateways)
	}
	c.remember(ctx, gateways)
	if len(unanswered) > 0 {
		sort.Strings(unanswered)
		return fmt.Errorf("asking what is in use: %w", &UnansweredError{Gateways: unanswered})
	}
	return nil
}

// LastActive returns when a gateway last saw the claim in use, by what Poll has
// heard; false if none has. Use of the ID that was parked before any claim of it was
// known counts as use of the claim.
func (c *Client) LastActive(id, claim string) (time.Time, bool) {
	a := &c.activity
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.latest[activityKey{id, claim}]
	if parked, also := a.latest[activityKey{id, ""}]; also && parked.After(at) {
		return parked, true
	}
	return at, ok
}

// Floor is a time before which nothing is known about use: when a gateway's process was
// last seen to have been replaced, stopped or lost, with what it knew; or the first call of
// Poll, unless what the controller before this one knew is known (see remember). Read it
// after Poll. The zero time means that nothing was asked yet.
func (c *Client) Floor() time.Time {
	c.activity.mu.Lock()
	floor, lost := c.activity.began, c.activity.lost
	c.activity.mu.Unlock()
	for _, t := range []time.Time{lost, c.o.Directory.LastLoss()} {
		if t.After(floor) {
			floor = t
		}
	}
	return floor
}

// Retain forgets the claims that keep refuses. Call it now and then with the
// claims that have not ended; nothing else bounds what is remembered. The claim
// is empty for an ID that was parked before any claim of it was known.
func (c *Client) Retain(keep func(id, claim string) bool) {
	a := &c.activity
	a.mu.Lock()
	defer a.mu.Unlock()
	for k := range a.latest {
		if !keep(k.id, k.claim) {
			delete(a.latest, k)
		}
	}
	for k := range a.seen {
		if !keep(k.id, k.claim) {
			delete(a.seen, k)
			delete(a.untold, k)
		}
	}
}

// pollOne asks one gateway what was in use, and tells it that it is number index, from 0, of
// the `of` gateways sorted by name.
func (c *Client) pollOne(ctx context.Context, g Gateway, index, of int) error {
	stub, err := c.gateway(g)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.PollTimeout)
	defer cancel()
	c.activity.mu.Lock()
	from := c.activity.cursors[g.Name]
	if from.final && c.activity.all {
		from = cursor{} // no acknowledgement yet: what it told is known to this process alone
	}
	c.activity.mu.Unlock()
	r, err := stub.LastActive(ctx, &controlplanepb.LastActiveRequest{
		Source: from.source, Cursor: from.value, Place: uint32(index), Gateways: uint32(of),
	})
	if err != nil {
		return err
	}
	if err := g.answered(r.GetHolder()); err != nil {
		return err
	}
	c.activity.merge(g, r, time.Now())
	if r.GetFinal() {
		c.o.Directory.handedOver(g)
	}
	if !r.GetKnown() {
		return fmt.Errorf("gateway %s cannot tell what is in use", g.Name)
	}
	return nil
}

// merge takes in an answer that arrived at a time.
func (a *activity) merge(g Gateway, r *controlplanepb.LastActiveResponse, arrived time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range r.GetActivities() {
		k := activityKey{e.GetSandboxId(), e.GetClaimId()}
		at := arrived.Add(-max(time.Duration(e.GetAgeNanos()), 0))
		if at.After(a.latest[k]) {
			a.latest[k] = at
		}
	}
	for _, e := range r.GetSeen() {
		a.see(activityKey{e.GetSandboxId(), e.GetClaimId()}, sight{arrived.Add(-max(time.Duration(e.GetAgeNanos()), 0)), e.GetPauseOrder()})
	}
	old, ok := a.cursors[g.Name]
	if ok && old.source != r.GetSource() && !old.final {
		a.lost = arrived // what the old source had not told yet is lost
	}
	if r.GetFinal() && (!old.final || old.source != r.GetSource()) {
		a.all = true // it goes with all that it had
	}
	a.hear(g, r.GetTold(), arrived)
	a.cursors[g.Name] = cursor{r.GetSource(), r.GetCursor(), r.GetFinal()}
}

// forgetCursors drops those of gateways that are over.
func (a *activity) forgetCursors(gateways []Gateway) {
	listed := make(map[string]bool, len(gateways))
	for _, g := range gateways {
		listed[g.Name] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.cursors {
		if !listed[name] {
			delete(a.cursors, name)
		}
	}
}
