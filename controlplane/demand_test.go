package controlplane

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var (
	poolP = types.NamespacedName{Namespace: "ns", Name: "p"}
	poolQ = types.NamespacedName{Namespace: "ns", Name: "q"}
)

// waits is what a gateway says of a pool where sandboxes of these hashes wait.
func waits(pool types.NamespacedName, oldest time.Duration, ids ...uint64) PoolDemand {
	return PoolDemand{Namespace: pool.Namespace, Pool: pool.Name, Waiting: ids, Oldest: oldest, Created: -1}
}

// changeLog notes which pools a Demands says have changed.
type changeLog struct {
	mu    sync.Mutex
	pools map[types.NamespacedName]int
}

func (c *changeLog) changed(pool types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pools == nil {
		c.pools = map[types.NamespacedName]int{}
	}
	c.pools[pool]++
}

// read returns the pools that have changed since the last call, sorted.
func (c *changeLog) read() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for pool := range c.pools {
		names = append(names, pool.Name)
	}
	c.pools = nil
	slices.Sort(names)
	return names
}

func (s *simulation) wantWaiting(d *Demands, pool types.NamespacedName, known bool, when string, ids ...uint64) Demand {
	s.t.Helper()
	got := d.Of(pool)
	if found := slices.Sorted(maps.Keys(got.Waiting)); !slices.Equal(found, ids) || got.Known != known {
		s.t.Errorf("%s: waiting %v, known %v; want %v, %v", when, found, got.Known, ids, known)
	}
	return got
}

func TestDemandIsThatOfAllGateways(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		a, b := s.run("g1", "a"), s.run("g2", "b")
		var c changeLog
		d := NewDemands(s.client, c.changed)
		s.wantWaiting(d, poolP, false, "before the first poll")
		a.demand.set(waits(poolP, 3*time.Second, 1, 2), waits(poolQ, time.Second, 9))
		b.demand.set(waits(poolP, 8*time.Second, 2, 3), PoolDemand{Namespace: "ns", Pool: "r", Created: 20 * time.Second})
		s.wantUnanswered(d.Poll(t.Context()), "", "a poll")
		start := time.Now()
		p := s.wantWaiting(d, poolP, true, "one that waits at two gateways counts once", 1, 2, 3)
		if !p.Oldest.Equal(start.Add(-8*time.Second)) || !p.Created.IsZero() {
			t.Errorf("oldest %v, created %v", start.Sub(p.Oldest), p.Created)
		}
		s.wantWaiting(d, poolQ, true, "another pool", 9)
		r := s.wantWaiting(d, types.NamespacedName{Namespace: "ns", Name: "r"}, true, "a pool where none waits")
		if !r.Created.Equal(start.Add(-20 * time.Second)) {
			t.Errorf("created %v ago", start.Sub(r.Created))
		}
		if got := c.read(); !slices.Equal(got, []string{"p", "q"}) {
			t.Errorf("told of %v", got)
		}
		after(time.Second)
		a.demand.set(waits(poolP, 4*time.Second, 1, 2))
		s.wantUnanswered(d.Poll(t.Context()), "", "the next poll")
		if got := c.read(); !slices.Equal(got, []string{"q"}) {
			t.Errorf("told of %v, want the pool that changed alone", got)
		}
		if at := d.Of(poolP).Waiting; !at[1].Equal(start.Add(time.Second)) || !at[3].Equal(start.Add(time.Second)) {
			t.Errorf("heard of by polls at %v", at)
		}
		s.wantWaiting(d, poolQ, true, "none waits any more")
		after(time.Second)
		a.demand.set(waits(poolP, time.Second, 2, 4))
		s.wantUnanswered(d.Poll(t.Context()), "", "one waits in the place of another")
		if got := c.read(); !slices.Equal(got, []string{"p"}) {
			t.Errorf("told of %v, want the pool where as many wait, but others", got)
		}
	})
}

// What a gateway does not say may be anything: nothing may shrink, and what it said
// before counts for five seconds, to grow by.
func TestDemandIsUnknownWhileAGatewayIsSilent(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		a, b := s.run("g1", "a"), s.run("g2", "b")
		a.demand.set(waits(poolP, 0, 1))
		b.demand.set(waits(poolP, 0, 2))
		d := NewDemands(s.client, nil)
		s.wantUnanswered(d.Poll(t.Context()), "", "both live")
		s.cutOff("g2", true)
		after(time.Second)
		a.demand.set(waits(poolP, 0, 1, 3))
		s.wantUnanswered(d.Poll(t.Context()), "g2", "one is cut off") // for a second
		s.wantWaiting(d, poolP, false, "at once", 1, 2, 3)
		for range 5 { // of a second each
			s.wantUnanswered(d.Poll(t.Context()), "g2", "cut off still")
		}
		s.wantWaiting(d, poolP, false, "after five seconds its answer is none", 1, 3)
		s.cutOff("g2", false)
		s.wantUnanswered(d.Poll(t.Context()), "", "reached again")
		s.wantWaiting(d, poolP, true, "reached again", 1, 2, 3)

		// An answer by another process than the lease names is none.
		b.kill()
		s.listen("g2", "c")
		s.wantUnanswered(d.Poll(t.Context()), "g2", "another process at its address")
		s.wantWaiting(d, poolP, false, "another process at its address", 1, 2, 3)
	})
}

// A gateway that is slow delays no answer of another.
func TestDemandCountsAsItComes(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		a := s.run("g1", "a")
		s.run("g2", "b")
		d := NewDemands(s.client, nil)
		s.cutOff("g2", true)
		a.demand.set(waits(poolP, 0, 1))
		polled := make(chan error, 1)
		go func() { polled <- d.Poll(context.Background()) }()
		after(DefaultCallTimeout / 2)
		s.wantWaiting(d, poolP, false, "while the other is waited for", 1)
		s.wantUnanswered(<-polled, "g2", "the poll")
	})
}

func TestDemandOfANewLeader(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		a := s.run("g1", "a")
		s.run("g2", "b").kill()
		a.demand.set(waits(poolP, 0, 1))
		d := NewDemands(s.client, nil)
		s.wantUnanswered(d.Poll(t.Context()), "g2", "one is dead")
		s.wantWaiting(d, poolP, false, "not all have answered", 1)
		after(leaseAndGrace + DefaultRefreshEvery)
		s.wantUnanswered(d.Poll(t.Context()), "", "its lease is over")
		s.wantWaiting(d, poolP, true, "its lease is over", 1)
	})
}

// A list of leases that fails does not say which gateways serve.
func TestDemandWithoutAList(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		a := s.run("g1", "a")
		a.demand.set(waits(poolP, 0, 1))
		d := NewDemands(s.client, nil)
		s.wantUnanswered(d.Poll(t.Context()), "", "a poll")
		s.api.setAway(true)
		if err := d.Poll(t.Context()); err == nil {
			t.Error("a poll without knowing the gateways")
		}
		s.wantWaiting(d, poolP, false, "the API server is away", 1)
		s.api.setAway(false)
		s.wantUnanswered(d.Poll(t.Context()), "", "it is back")
		s.wantWaiting(d, poolP, true, "it is back", 1)
		after(demandFresh + time.Second)
		s.wantWaiting(d, poolP, false, "nothing was asked for long")
	})
}

// A gateway whose lease is over can claim no pod, also if its own pod is there for
// hours: pools may shrink.
func TestDemandOfAnExpiredGateway(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		g := s.expire("g1", "a")
		g.demand.set(waits(poolP, 0, 1))
		d := NewDemands(s.client, nil)
		s.wantUnanswered(d.Poll(t.Context()), "", "its lease is over")
		s.wantWaiting(d, poolP, true, "its lease is over")
		if n := g.demand.polls(); n != 0 {
			t.Errorf("asked %d times", n)
		}
	})
}

// One that stops cleanly takes what waited there along, at the next poll.
func TestDemandOfAGatewayThatLeaves(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		a := s.run("g1", "a")
		s.run("g2", "b")
		a.demand.set(waits(poolP, 0, 1))
		var c changeLog
		d := NewDemands(s.client, c.changed)
		s.wantUnanswered(d.Poll(t.Context()), "", "a poll")
		if err := a.Leave(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		a.cancel = nil
		after(time.Second)
		c.read()
		s.wantUnanswered(d.Poll(t.Context()), "", "it has left")
		s.wantWaiting(d, poolP, true, "it has left")
		if got := c.read(); !slices.Equal(got, []string{"p"}) {
			t.Errorf("told of %v", got)
		}
	})
}

// Start polls each second, and soon when asked to, but not without end.
func TestDemandIsPolled(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		g := s.run("g1", "a")
		d := NewDemands(s.client, nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Start(ctx) }()
		after(10*time.Second + DemandInterval/2)
		if n := g.demand.polls(); n != 11 {
			t.Errorf("%d polls in ten seconds, want 11", n)
		}
		before := g.demand.polls()
		d.Soon()
		after(DemandInterval / 4)
		if n := g.demand.polls() - before; n != 1 {
			t.Errorf("%d polls at once after Soon, want 1", n)
		}
		before = g.demand.polls()
		for range 1000 {
			d.Soon()
			after(time.Millisecond)
		}
		if n := g.demand.polls() - before; n > int(time.Second/demandGap)+1 {
			t.Errorf("%d polls in a second by as many calls of Soon as could be", n)
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("Start returned %v", err)
		}
	})
}

// What no gateway reports any more is forgotten, once the annotation has it.
func TestDemandForgetsOldCreates(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		a := s.run("g1", "a")
		a.demand.set(PoolDemand{Namespace: "ns", Pool: "p", Created: time.Hour})
		d := NewDemands(s.client, nil)
		poll := func() { s.wantUnanswered(d.Poll(t.Context()), "", "a poll") }
		poll()
		created := d.Of(poolP).Created
		if time.Since(created) != time.Hour {
			t.Errorf("created %v ago", time.Since(created))
		}
		a.demand.set()
		after(createdKept / 2)
		poll()
		if !d.Of(poolP).Created.Equal(created) {
			t.Error("forgotten before the annotation has it for sure")
		}
		after(createdKept)
		poll()
		if !d.Of(poolP).Created.IsZero() || len(d.created) != 0 {
			t.Error("remembered for ever")
		}
	})
}
