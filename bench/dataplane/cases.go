package dataplane

import (
	"context"
	"fmt"
	"time"

	"github.com/sandlane/sandlane/bench/load"
	"github.com/sandlane/sandlane/bench/result"
)

// one connection: how long a request takes when nobody else is there.
func (w *world) one(ctx context.Context) error {
	return w.both(ctx, "one", func(ctx context.Context, s *side) (measured, error) {
		return w.closed(ctx, s, w.single(1), w.RoundTime)
	})
}

// openLoop sends to both at the same rate, half of what the floor can do.
func (w *world) openLoop(ctx context.Context) error {
	rate := result.Median(w.Row("dataplane/hit/do-nothing/rps").Samples) / 2
	w.Add("dataplane/open/both/rate", "requests/s", "", rate)
	return w.both(ctx, "open", func(ctx context.Context, s *side) (measured, error) {
		return w.open(ctx, s, w.single(connections), w.RoundTime, rate)
	})
}

// twoWorkers is the headline's case again with two of Envoy's threads.
func (w *world) twoWorkers(ctx context.Context) error {
	if err := w.startSides(ctx, 2, 1); err != nil {
		return err
	}
	if err := w.warm(ctx, w.single(connections)); err != nil {
		return err
	}
	return w.both(ctx, "workers2", func(ctx context.Context, s *side) (measured, error) {
		return w.closed(ctx, s, w.single(connections), w.RoundTime)
	})
}

// fleets goes round over many sandboxes: first each once, with every process just
// started, then as fast as it goes.
func (w *world) fleets(ctx context.Context) error {
	for _, count := range w.Fleets {
		hosts, err := w.cluster.Fleet(ctx, count)
		if err != nil {
			return err
		}
		t := load.Target{Hosts: hosts, Connections: connections}
		for range w.Rounds {
			if err := w.startSides(ctx, 1, count); err != nil {
				return err
			}
			if err := w.touch(ctx, t); err != nil {
				return err
			}
		}
		name := fmt.Sprintf("fleet-%d", count)
		if err := w.both(ctx, name, func(ctx context.Context, s *side) (measured, error) {
			return w.closed(ctx, s, t, w.RoundTime)
		}); err != nil {
			return err
		}
		single := result.Median(w.Row("dataplane/hit/sandlane/rps").Samples)
		for _, rate := range w.Row("dataplane/" + name + "/sandlane/rps").Samples {
			w.Add("dataplane/"+name+"/ratio/vs-one-sandbox", "ratio", "more", rate/single)
		}
		if err := w.memory(name); err != nil {
			return err
		}
		if err := w.inUse(ctx, t); err != nil {
			return err
		}
	}
	w.budget("touch-10000/ratio/vs-do-nothing", 0.9)
	w.budget("fleet-10000/ratio/vs-one-sandbox", 0.75)
	return nil
}

// touch is one sample of first requests on either side.
func (w *world) touch(ctx context.Context, t load.Target) error {
	name := fmt.Sprintf("dataplane/touch-%d/", len(t.Hosts))
	var rate [2]float64
	for i, s := range []*side{w.floor, w.ours} {
		t.Address = s.address
		r, err := load.Once(ctx, t, time.Minute)
		if err != nil {
			return err
		}
		if err := r.Check(); err != nil {
			return fmt.Errorf("first requests on %s: %w", s.name, err)
		}
		rate[i] = r.PerSecond()
		w.Add(name+s.name+"/rps", "requests/s", "more", r.PerSecond())
		w.Add(name+s.name+"/p99", "µs", "less", float64(r.P99.Microseconds()))
	}
	w.Add(name+"ratio/vs-do-nothing", "ratio", "more", rate[1]/rate[0])
	w.Progress("touch-%d: %.0f/s, do-nothing %.0f/s", len(t.Hosts), rate[1], rate[0])
	return nil
}

func (w *world) budget(name string, atLeast float64) {
	if row := w.Row("dataplane/" + name); row != nil {
		row.Budget = &result.Budget{More: true, Value: atLeast}
	}
}

// hot is how many sandboxes get the hits of the case with misses.
const hot = 10

// misses has a route cache for an eighth of the sandboxes. Most requests go to a
// few, so that these stay; one of a hundred goes round over the others, and finds
// its route evicted.
func (w *world) misses(ctx context.Context) error {
	count := w.Fleets[len(w.Fleets)-1]
	hosts, err := w.cluster.Fleet(ctx, count)
	if err != nil {
		return err
	}
	if err := w.startSides(ctx, 1, count, "--cache-size", fmt.Sprint(count/8)); err != nil {
		return err
	}
	t := load.Target{Hosts: hosts[:hot], Rare: hosts[hot:], RareEvery: 100, Connections: connections}
	if err := w.warm(ctx, t); err != nil {
		return err
	}
	before, err := w.gateway.Answers(ctx)
	if err != nil {
		return err
	}
	if err := w.both(ctx, "misses", func(ctx context.Context, s *side) (measured, error) {
		return w.closed(ctx, s, t, w.RoundTime)
	}); err != nil {
		return err
	}
	after, err := w.gateway.Answers(ctx)
	if err != nil {
		return err
	}
	hits, resolved := after["hit"]-before["hit"], after["resolved"]-before["resolved"]
	w.Add("dataplane/misses/sandlane/share", "%", "", 100*resolved/(hits+resolved))
	return nil
}
