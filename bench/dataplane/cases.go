package dataplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandlane/sandlane/bench/load"
	"github.com/sandlane/sandlane/test/result"
)

// one measures the latency with one connection, without other requests.
func (w *world) one(ctx context.Context) error {
	return w.both(ctx, "one", w.Rounds, func(ctx context.Context, s *side) (measured, error) {
		return w.closed(ctx, s, w.single(1), w.RoundTime)
	})
}

// openLoop sends to both at the same rate, half of what the floor can do.
func (w *world) openLoop(ctx context.Context) error {
	m, err := w.closed(ctx, w.floor, w.single(connections), w.RoundTime)
	if err != nil {
		return err
	}
	rate := m.PerSecond() / 2
	w.Add("dataplane/open/both/rate", "requests/s", "", rate)
	rounds, err := w.turns(ctx, "open", w.Judged, []*side{w.floor, w.ours}, func(ctx context.Context, s *side) (measured, error) {
		return w.open(ctx, s, w.single(connections), w.RoundTime, rate)
	})
	if err != nil {
		return err
	}
	for i, m := range rounds[1] { // the rate is the same by design
		w.Add("dataplane/open/ratio/p99-vs-do-nothing", "ratio", "less", m.P99.Seconds()/rounds[0][i].P99.Seconds())
	}
	w.Progress("open at %.0f/s: p99 %v, do-nothing %v", rate, rounds[1][0].P99, rounds[0][0].P99)
	return nil
}

// fleets sends requests to many sandboxes in turn: first one to each, with every process
// just started, then as fast as possible. The budgets are for the largest fleet.
func (w *world) fleets(ctx context.Context) error {
	for i, count := range w.Fleets {
		hosts, err := w.cluster.Fleet(ctx, count)
		if err != nil {
			return err
		}
		n := w.Rounds
		if i == len(w.Fleets)-1 {
			n = w.Judged
		}
		t := load.Target{Hosts: hosts, Connections: connections}
		for round := range n {
			if err := w.startSides(ctx, 1, count); err != nil {
				return err
			}
			if err := w.touch(ctx, t, round); err != nil {
				return err
			}
		}
		if err := w.fleet(ctx, fmt.Sprintf("fleet-%d", count), t, n); err != nil {
			return err
		}
		if err := w.inUse(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// fleet measures the steady state: both ext_proc servers over the whole fleet, and
// Sandlane over one sandbox of it, in turns.
func (w *world) fleet(ctx context.Context, name string, t load.Target, n int) error {
	one := *w.ours
	one.name = "sandlane-one"
	rounds, err := w.turns(ctx, name, n, []*side{w.floor, w.ours, &one}, func(ctx context.Context, s *side) (measured, error) {
		if s == &one {
			return w.closed(ctx, s, w.single(connections), w.RoundTime)
		}
		return w.closed(ctx, s, t, w.RoundTime)
	})
	if err != nil {
		return err
	}
	w.ratios(name, rounds[0], rounds[1])
	for i, m := range rounds[1] {
		w.Add("dataplane/"+name+"/ratio/vs-one-sandbox", "ratio", "more", m.PerSecond()/rounds[2][i].PerSecond())
	}
	w.Progress("%s: %.0f/s, do-nothing %.0f/s, one sandbox %.0f/s", name, rounds[1][0].PerSecond(), rounds[0][0].PerSecond(), rounds[2][0].PerSecond())
	return nil
}

// touch takes one sample of first requests on each side; the side that begins alternates.
func (w *world) touch(ctx context.Context, t load.Target, round int) error {
	name := fmt.Sprintf("dataplane/touch-%d/", len(t.Hosts))
	rate := map[*side]float64{}
	order := []*side{w.floor, w.ours}
	if round%2 == 1 {
		slices.Reverse(order)
	}
	for _, s := range order {
		t.Address = s.address
		r, err := load.Once(ctx, t, time.Minute)
		if err != nil {
			return err
		}
		if err := r.Check(); err != nil {
			return fmt.Errorf("first requests on %s: %w", s.name, errors.Join(err, w.ended()))
		}
		rate[s] = r.PerSecond()
		w.Add(name+s.name+"/rps", "requests/s", "more", r.PerSecond())
		w.Add(name+s.name+"/p99", "µs", "less", float64(r.P99.Microseconds()))
	}
	w.Add(name+"ratio/vs-do-nothing", "ratio", "more", rate[w.ours]/rate[w.floor])
	w.Progress("touch-%d: %.0f/s, do-nothing %.0f/s", len(t.Hosts), rate[w.ours], rate[w.floor])
	return nil
}

// hot is how many sandboxes get the hits of the case with misses.
const hot = 10

// misses measures a gateway whose route cache holds an eighth of the sandboxes. Most
// requests go to a few sandboxes, whose routes stay; one request of a hundred goes to the
// next of the others, from where the last round ended, and finds no route.
func (w *world) misses(ctx context.Context) error {
	hosts, err := w.largest(ctx)
	if err != nil {
		return err
	}
	if err := w.startSides(ctx, 1, len(hosts), "--cache-size", fmt.Sprint(len(hosts)/8)); err != nil {
		return err
	}
	t := load.Target{Hosts: hosts[:hot], Rare: hosts[hot:], RareEvery: 100, Connections: connections}
	from := map[*side]int{}
	round := func(ctx context.Context, s *side) (measured, error) {
		t.RareFrom = from[s]
		m, err := w.closed(ctx, s, t, w.RoundTime)
		from[s] += int(m.Requests)/t.RareEvery + connections
		return m, err
	}
	for _, s := range []*side{w.floor, w.ours} { // warm both
		if _, err := round(ctx, s); err != nil {
			return err
		}
	}
	before, err := w.gateway.Answers(ctx)
	if err != nil {
		return err
	}
	if err := w.both(ctx, "misses", w.Rounds, round); err != nil {
		return err
	}
	after, err := w.gateway.Answers(ctx)
	if err != nil {
		return err
	}
	hits, resolved := after["hit"]-before["hit"], after["resolved"]-before["resolved"]
	share, err := result.Share(resolved, hits+resolved)
	if err != nil {
		return fmt.Errorf("how many requests missed: %w", err)
	}
	w.Add("dataplane/misses/sandlane/share", "%", "", share)
	return nil
}

// largest makes the largest fleet and returns its hosts.
func (w *world) largest(ctx context.Context) ([]string, error) {
	return w.cluster.Fleet(ctx, w.Fleets[len(w.Fleets)-1])
}
