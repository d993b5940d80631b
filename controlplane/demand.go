package controlplane

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/controlplane/controlplanepb"
	"github.com/sandlane/sandlane/kubeclient/backoff"
)

const (
	// DemandInterval is the time between two polls of what waits.
	DemandInterval = time.Second
	// demandFresh is how long an answer counts.
	demandFresh = 5 * time.Second
	// demandGap is the least time between two polls, however often Soon is called.
	demandGap = 100 * time.Millisecond
	// createdKept is how long a time that no gateway reports any more is remembered:
	// longer than gateways take to write it to the pool's annotation.
	createdKept = time.Minute
)

// Demand is what is waited for at a pool, over all gateways.
type Demand struct {
	// Waiting holds a hash of the ID of each sandbox that waits for a pod
	// (schedule.HashID), once if it waits at several gateways, and when the newest poll
	// that heard of it began.
	Waiting map[uint64]time.Time
	// Oldest is since when the longest of them has waited; zero if none waits.
	Oldest time.Time
	// Created is when the pool was last asked for a sandbox; zero if no gateway knows.
	Created time.Time
	// Known: every gateway that holds a lease has answered the last poll, and that was
	// at most five seconds ago. Else at least Waiting wait, and nothing may shrink
	// by it.
	Known bool
}

// Demands holds the gateways' answers about what waits. It is a manager.Runnable
// of the leader: Start polls each DemandInterval, and soon when asked to. All methods
// are safe for concurrent use.
//
// # States of a gateway
//
//	listed    a list of leases names it and it has not answered yet: unknown
//	answered  its answer to the last poll counts for five seconds
//	missed    it did not answer the last poll, or another process answered at its
//	          address: unknown; its answer before that counts on, to grow by, until it
//	          is five seconds old
//	(gone)    the last list does not name it, or its lease is over: it can claim for
//	          no request, so nothing is asked of it
//
// Demand is known while all listed gateways have answered. A list that fails makes it
// unknown, since a gateway that is not on the last list may serve by now; so it is
// until a new leader's first poll has ended.
type Demands struct {
	client  *Client
	changed func(types.NamespacedName)
	soon    chan struct{} // room for one: poll soon

	mu       sync.Mutex
	gateways map[string]*gatewayDemand            // of the last list, by lease name; guarded by mu
	listed   time.Time                            // when that list was asked for; zero if the last one failed; guarded by mu
	created  map[types.NamespacedName]poolCreated // guarded by mu
}

// poolCreated is when a pool was last asked for a sandbox, and when a gateway last
// said so.
type poolCreated struct{ at, heard time.Time }

// gatewayDemand is what one gateway has answered. Demands.mu guards it.
type gatewayDemand struct {
	asked  time.Time // when the poll that it answered began; zero: it never did
	missed bool      // it did not answer a later one
	pools  map[types.NamespacedName]poolWaiting
}

type poolWaiting struct {
	ids    []uint64
	oldest time.Time
}

// counts reports whether the answer is recent enough to count.
func (g *gatewayDemand) counts(now time.Time) bool {
	return !g.asked.IsZero() && now.Sub(g.asked) <= demandFresh
}

// NewDemands returns a Demands that polls by the client. changed is called for each pool
// where other sandboxes wait than before; it must not block, and may be nil.
func NewDemands(c *Client, changed func(types.NamespacedName)) *Demands {
	if changed == nil {
		changed = func(types.NamespacedName) {}
	}
	return &Demands{
		client: c, changed: changed, soon: make(chan struct{}, 1),
		gateways: map[string]*gatewayDemand{}, created: map[types.NamespacedName]poolCreated{},
	}
}

// Start polls until the context ends. Call it once.
func (d *Demands) Start(ctx context.Context) error {
	tick := time.NewTicker(DemandInterval)
	defer tick.Stop()
	for {
		if err := d.Poll(ctx); err != nil && ctx.Err() == nil {
			d.client.o.Log.Debug("not every gateway has said what waits", "error", err)
		}
		if !backoff.Sleep(ctx, demandGap) {
			return nil
		}
		select {
		case <-tick.C:
		case <-d.soon:
		case <-ctx.Done():
			return nil
		}
	}
}

// Soon asks for a poll before the next one is due: something has begun to wait. It
// does not block.
func (d *Demands) Soon() {
	select {
	case d.soon <- struct{}{}:
	default:
	}
}

// Poll asks every gateway that holds a lease once. Each answer counts when it comes:
// one that is slow delays no other. It fails with *UnansweredError if one did not
// answer. Do not call it beside Start.
func (d *Demands) Poll(ctx context.Context) error {
	asked := time.Now()
	all, err := d.client.list(ctx)
	if err != nil {
		d.mu.Lock()
		d.listed = time.Time{}
		d.mu.Unlock()
		return fmt.Errorf("asking what waits: %w", err)
	}
	gateways := fencing(all)
	d.tell(d.relist(asked, gateways))
	var asking sync.WaitGroup
	answered := make([]bool, len(gateways))
	for i, g := range gateways {
		asking.Go(func() {
			r := d.ask(ctx, g)
			answered[i] = r != nil
			d.tell(d.take(g.Name, asked, r))
		})
	}
	asking.Wait()
	var missing []string
	for i, ok := range answered {
		if !ok {
			missing = append(missing, gateways[i].Name)
		}
	}
	if len(missing) > 0 {
		d.client.o.Metrics.demandUnanswered.Add(float64(len(missing)))
		return fmt.Errorf("asking what waits: %w", &UnansweredError{Gateways: missing})
	}
	return nil
}

// ask asks one gateway; nil if it does not answer.
func (d *Demands) ask(ctx context.Context, g Gateway) *controlplanepb.PoolDemandResponse {
	stub, err := d.client.gateway(g)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.client.o.CallTimeout)
	defer cancel()
	r, err := stub.PoolDemand(ctx, &controlplanepb.PoolDemandRequest{})
	if err == nil {
		err = g.answered(r.GetHolder())
	}
	if err != nil {
		d.client.o.Log.Debug("gateway did not say what waits", "gateway", g.Name, "error", err)
		return nil
	}
	return r
}

// relist takes in the gateways of a list, forgets the others, and returns the pools
// where these made a difference.
func (d *Demands) relist(asked time.Time, gateways []Gateway) (changed []types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, before := time.Now(), d.gateways
	d.gateways, d.listed = make(map[string]*gatewayDemand, len(gateways)), asked
	for _, g := range gateways {
		if known := before[g.Name]; known != nil {
			d.gateways[g.Name] = known
		} else {
			d.gateways[g.Name] = &gatewayDemand{}
		}
	}
	for name, g := range before {
		if d.gateways[name] == nil && g.counts(now) {
			for pool := range g.pools {
				changed = append(changed, pool)
			}
		}
	}
	maps.DeleteFunc(d.created, func(_ types.NamespacedName, c poolCreated) bool { return now.Sub(c.heard) > createdKept })
	return changed
}

// take takes in a gateway's answer to the poll that began at a time, nil for none, and
// returns the pools where other sandboxes wait now.
func (d *Demands) take(name string, asked time.Time, r *controlplanepb.PoolDemandResponse) (changed []types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.gateways[name]
	if g == nil || r == nil {
		if g != nil {
			g.missed = true
		}
		return nil
	}
	now := time.Now()
	next := &gatewayDemand{asked: asked, pools: make(map[types.NamespacedName]poolWaiting, len(r.GetPools()))}
	before := map[types.NamespacedName]map[uint64]time.Time{}
	for pool := range g.pools {
		before[pool] = d.waiting(pool, now)
	}
	for _, p := range r.GetPools() {
		key := types.NamespacedName{Namespace: p.GetNamespace(), Name: p.GetPool()}
		if len(p.GetWaiting()) > 0 {
			if _, noted := before[key]; !noted {
				before[key] = d.waiting(key, now)
			}
			next.pools[key] = poolWaiting{ids: p.GetWaiting(), oldest: now.Add(-max(time.Duration(p.GetOldestNanos()), 0))}
		}
		if age := time.Duration(p.GetCreatedNanos()); age >= 0 {
			c := d.created[key]
			if at := now.Add(-age); at.After(c.at) {
				c.at = at
			}
			c.heard = now
			d.created[key] = c
		}
	}
	d.gateways[name] = next
	for pool, ids := range before {
		if !sameIDs(d.waiting(pool, now), ids) {
			changed = append(changed, pool)
		}
	}
	return changed
}

// sameIDs reports whether the same sandboxes wait: one that waits in the place of another
// needs a pod too.
func sameIDs(a, b map[uint64]time.Time) bool {
	return maps.EqualFunc(a, b, func(_, _ time.Time) bool { return true })
}

// tell calls changed, without the mutex.
func (d *Demands) tell(pools []types.NamespacedName) {
	for _, pool := range pools {
		d.changed(pool)
	}
}

// waiting is what waits at a pool by the answers that count. The mutex is held.
func (d *Demands) waiting(pool types.NamespacedName, now time.Time) map[uint64]time.Time {
	ids := map[uint64]time.Time{}
	for _, g := range d.gateways {
		if !g.counts(now) {
			continue
		}
		for _, id := range g.pools[pool].ids {
			if g.asked.After(ids[id]) {
				ids[id] = g.asked
			}
		}
	}
	return ids
}

// Of returns the demand for a pool.
func (d *Demands) Of(pool types.NamespacedName) Demand {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	out := Demand{
		Waiting: d.waiting(pool, now), Created: d.created[pool].at,
		Known: !d.listed.IsZero() && now.Sub(d.listed) <= demandFresh,
	}
	for _, g := range d.gateways {
		if g.missed || !g.counts(now) {
			out.Known = false
		}
		if p := g.pools[pool]; g.counts(now) && len(p.ids) > 0 && (out.Oldest.IsZero() || p.oldest.Before(out.Oldest)) {
			out.Oldest = p.oldest
		}
	}
	return out
}

// Waiting returns the part of Of about what waits.
func (d *Demands) Waiting(pool types.NamespacedName) (ids map[uint64]time.Time, known bool) {
	of := d.Of(pool)
	return of.Waiting, of.Known
}
