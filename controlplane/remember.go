package controlplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sandlane/sandlane/controlplane/controlplanepb"
)

// rememberAtOnce is how many claims one message of a telling has: some hundred bytes each.
const rememberAtOnce = 10_000

// memory is what outlasts a controller of its knowledge of use: it is kept by one gateway,
// the keeper. docs/design/last-use.md says what is kept where, and what a failure costs.
// Guarded by activity.mu. Its states:
//
//	new      no gateway was asked; the floor is the first poll
//	asking   some gateways have answered, with what they were told; nothing is released
//	settled  all have: the floor is the former controller's, or the first poll
//
// The former controller's floor counts if a gateway was told it and holds its lease as it did
// then, every process that was counted on is among those that answer, and every other that
// answers is the first process under its lease. Then nothing that knew of use has gone unseen:
// a process that was killed is missing, or its lease is there or another process has it; one
// that stopped cleanly and told no controller leaves its lease, marked. Of several floors the
// latest counts.
type memory struct {
	// heard is what gateways were told by the controller before this one, by lease name;
	// nil once it is settled whether that counts.
	heard   map[string]heard
	settled bool

	// keeper is the gateway that was told everything (keeperKey); empty if none was. told is
	// what it was told last.
	keeper string
	told   remembered
	// all: everything is to be told, since a gateway goes that knew some of it. Until it is,
	// that gateway hears no acknowledgement.
	all bool
	// untold are the claims of which the keeper is to be told since when they run.
	untold map[activityKey]struct{}
}

// heard is what one gateway was told.
type heard struct {
	holder Holder
	remembered
}

// remembered is what is told besides claims.
type remembered struct {
	floor  time.Time
	counts []string // the gateways that the controller counts on, sorted
}

// sight is since when a claim runs, and the pauseOrder for which that holds.
type sight struct {
	at    time.Time
	order int64
}

// SeenRunning notes since when this controller has seen a claim run, for the next one: it
// holds for this pauseOrder of the Sandbox.
func (c *Client) SeenRunning(id, claim string, at time.Time, order int64) {
	a, k := &c.activity, activityKey{id, claim}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.see(k, sight{at, order}) {
		a.untold[k] = struct{}{}
	}
}

// RunningSince returns since when a controller has seen a claim run, and the Sandbox's
// pauseOrder for which that held; false if none has that is known of. Read it after Poll.
func (c *Client) RunningSince(id, claim string) (at time.Time, order int64, ok bool) {
	c.activity.mu.Lock()
	defer c.activity.mu.Unlock()
	s, ok := c.activity.seen[activityKey{id, claim}]
	return s.at, s.order, ok
}

// see notes a sighting, and reports whether that is news: the one of the last pause or resume
// counts, and the latest of those. mu is held.
func (a *activity) see(k activityKey, s sight) bool {
	old, ok := a.seen[k]
	if ok && (s.order < old.order || s.order == old.order && !s.at.After(old.at)) {
		return false
	}
	a.seen[k] = s
	return true
}

// hear notes what a gateway was told. mu is held.
func (a *activity) hear(g Gateway, told *controlplanepb.Memory, arrived time.Time) {
	if told == nil || a.settled {
		return
	}
	floor := arrived.Add(-max(time.Duration(told.GetFloorAgeNanos()), 0))
	a.heard[g.Name] = heard{g.Holder, remembered{floor, told.GetGateways()}}
}

// settle decides, once every gateway has answered, whether what the controller before this
// one knew counts: some gateway was told, and every gateway that it counted on is there, as
// the same process, as is everything else that may know of use.
func (a *activity) settle(gateways []Gateway) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled {
		return
	}
	a.settled = true
	var floor time.Time
	for _, g := range gateways {
		h, ok := a.heard[g.Name]
		if !ok || h.holder.Instance != g.Holder.Instance {
			continue
		}
		if !h.covers(gateways) {
			return
		}
		if h.floor.After(floor) {
			floor = h.floor
		}
		a.keeper, a.told = keeperKey(g), h.remembered
	}
	if !floor.IsZero() {
		a.began = floor
	}
	a.heard = nil
}

// covers reports whether the gateways are those that were counted on, and such as joined
// since under a lease of their own: those know what they did themselves.
func (r remembered) covers(gateways []Gateway) bool {
	var there []string
	for _, g := range gateways {
		key := processKey(g)
		if there = append(there, key); !g.First && !slices.Contains(r.counts, key) {
			return false
		}
	}
	return !slices.ContainsFunc(r.counts, func(key string) bool { return !slices.Contains(there, key) })
}

// processKey names a process: its memory is lost with it.
func processKey(g Gateway) string { return g.Name + "/" + g.Holder.Instance }

// keeperKey names a process and its lease: what it was told counts while it holds that.
func keeperKey(g Gateway) string { return g.Name + "/" + g.Holder.String() }

// remember tells the keeper what it was not told yet. A telling that fails is repeated from
// the beginning at the next poll. Nothing that this process judges depends on it; but until
// it is told no lease of a gateway that is over is deleted, since the next controller may
// have only that to see it by.
func (c *Client) remember(ctx context.Context, gateways []Gateway) {
	now := time.Now() // before the floor is read: it has all that was lost until now
	floor := c.Floor()
	what, ok := c.activity.toTell(gateways, floor)
	if !ok {
		return
	}
	if what != nil {
		if err := c.tell(ctx, what, floor); err != nil {
			c.o.Log.Debug("gateway does not remember what is in use", "gateway", what.keeper.Name, "error", err)
			c.activity.mu.Lock()
			defer c.activity.mu.Unlock()
			c.activity.keeper, c.activity.all = "", true
			return
		}
	}
	c.o.Directory.noteRemembered(now)
}

// telling is what a keeper is to be told.
type telling struct {
	keeper Gateway
	seen   map[activityKey]sight
	used   map[activityKey]time.Time
	counts []string
}

// toTell returns what the keeper is to be told, nil for nothing; false if it cannot be said
// yet, or no gateway can be told. What is returned counts as told.
func (a *activity) toTell(gateways []Gateway, floor time.Time) (*telling, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.settled {
		return nil, false
	}
	keeper, ok, counts := a.choose(gateways)
	if !ok {
		a.keeper, a.all = "", len(counts) > 0
		return nil, !a.all // without any gateway that stays there is none to wait for
	}
	out := &telling{keeper: keeper, seen: map[activityKey]sight{}, used: map[activityKey]time.Time{}, counts: counts}
	switch all := a.all || a.keeper != keeperKey(keeper); {
	case all:
		for k, s := range a.seen {
			out.seen[k] = s
		}
		for k, at := range a.latest {
			if k.claim != "" {
				out.used[k] = at
			}
		}
	case len(a.untold) == 0 && floor.Equal(a.told.floor) && slices.Equal(counts, a.told.counts):
		return nil, true
	default:
		for k := range a.untold {
			out.seen[k] = a.seen[k]
		}
	}
	clear(a.untold)
	a.keeper, a.told, a.all = keeperKey(keeper), remembered{floor, counts}, false
	return out, true
}

// choose returns the gateway that is to remember, the one that does if it can; and those
// that this process counts on, without such as have handed over. mu is held.
func (a *activity) choose(gateways []Gateway) (keeper Gateway, ok bool, counts []string) {
	for _, g := range gateways {
		c := a.cursors[g.Name]
		if c.final {
			continue
		}
		counts = append(counts, processKey(g))
		if g.Expired || g.Gone || g.Holder.Mark != "" || c.source == "" {
			continue
		}
		if !ok || keeperKey(g) == a.keeper {
			keeper, ok = g, true
		}
	}
	slices.Sort(counts)
	return keeper, ok, counts
}

// tell sends a telling; its last message has what is told besides claims.
func (c *Client) tell(ctx context.Context, what *telling, floor time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, c.o.PollTimeout)
	defer cancel()
	g := what.keeper
	stub, err := c.gateway(g)
	if err != nil {
		return err
	}
	send := func(r *controlplanepb.RememberRequest) error {
		answer, err := stub.Remember(ctx, r)
		if err != nil {
			return fmt.Errorf("telling gateway %s what is in use: %w", g.Name, err)
		}
		return g.answered(answer.GetHolder())
	}
	r := &controlplanepb.RememberRequest{}
	full := func() error {
		if len(r.GetSeen())+len(r.GetUsed()) < rememberAtOnce {
			return nil
		}
		whole := r
		r = &controlplanepb.RememberRequest{}
		return send(whole)
	}
	for k, s := range what.seen {
		r.Seen = append(r.Seen, &controlplanepb.Sighting{SandboxId: k.id, ClaimId: k.claim, AgeNanos: int64(time.Since(s.at)), PauseOrder: s.order})
		if err := full(); err != nil {
			return err
		}
	}
	for k, at := range what.used {
		r.Used = append(r.Used, &controlplanepb.Activity{SandboxId: k.id, ClaimId: k.claim, AgeNanos: int64(time.Since(at))})
		if err := full(); err != nil {
			return err
		}
	}
	r.Told = &controlplanepb.Memory{FloorAgeNanos: int64(time.Since(floor)), Gateways: what.counts}
	return send(r)
}
