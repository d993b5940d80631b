package dataplane

import (
	"context"
	"fmt"
	"time"

	"github.com/sandlane/sandlane/bench/load"
	"github.com/sandlane/sandlane/bench/suite"
)

// The rows of the headline.
const (
	HeadlineVsDoNothing = "dataplane/hit/ratio/vs-do-nothing"
	HeadlineVsPlain     = "dataplane/hit/ratio/vs-plain"
)

const (
	section     = "dataplane"
	connections = 32
)

// Section returns the section of this package.
func Section() suite.Section {
	return suite.Section{Name: section, About: "requests through Envoy: plain, with a do-nothing ext_proc server, with Sandlane", Run: run}
}

func run(ctx context.Context, e *suite.Env) error {
	w, err := newWorld(ctx, e, section)
	if err != nil {
		return err
	}
	defer w.close()
	if _, err := w.cluster.Fleet(ctx, 1); err != nil {
		return err
	}
	if err := w.tune(ctx); err != nil {
		return err
	}
	if err := w.startSides(ctx, 1, 1); err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		run  func(context.Context) error
	}{{"hit", w.hit}, {"one", w.one}, {"open", w.openLoop}, {"fleets", w.fleets}, {"misses", w.misses}} {
		if !w.Wants(c.name) {
			continue
		}
		if err := c.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// single returns a target with one sandbox and the given number of connections.
func (w *world) single(connections int) load.Target {
	return load.Target{Hosts: []string{w.cluster.Host("b0")}, Connections: connections}
}

// tune finds the settings under which the floor is the fastest.
func (w *world) tune(ctx context.Context) (err error) {
	w.tuning, err = w.TuneFloor(ctx, section, func(ctx context.Context, name string, env []string) (suite.Tried, error) {
		s, err := w.startFloor(ctx, name, 1, 1, env)
		if err != nil {
			return suite.Tried{}, err
		}
		return suite.Tried{Stop: s.stop, Round: func(ctx context.Context) (float64, error) {
			m, err := w.closed(ctx, s, w.single(connections), w.RoundTime/4)
			return m.PerSecond(), err
		}}, nil
	})
	return err
}

// hit is the headline: both ext_proc servers, and plain Envoy for half as long, in
// turns.
func (w *world) hit(ctx context.Context) error {
	t := w.single(connections)
	if err := w.warm(ctx, t); err != nil {
		return err
	}
	sides := []*side{w.floor, w.ours, w.plain}
	rounds, err := w.turns(ctx, "hit", w.Pairs, sides, func(ctx context.Context, s *side) (measured, error) {
		d := w.PairTime
		if s == w.plain {
			d /= 2
		}
		m, err := w.closed(ctx, s, t, d)
		w.Progress("hit: %s: %.0f/s", s.name, m.PerSecond())
		return m, err
	})
	if err != nil {
		return err
	}
	w.ratios("hit", rounds[0], rounds[1])
	for i, m := range rounds[1] {
		w.Add(HeadlineVsPlain, "ratio", "more", m.PerSecond()/rounds[2][i].PerSecond())
	}
	w.Progress("hit: %.3f of the do-nothing server, %.3f of plain Envoy", w.Row(HeadlineVsDoNothing).Summary().Median, w.Row(HeadlineVsPlain).Summary().Median)
	return nil
}

// warm sends a second of load to each side: connections, pools, caches.
func (w *world) warm(ctx context.Context, t load.Target) error {
	for _, s := range []*side{w.plain, w.floor, w.ours} {
		if _, err := w.closed(ctx, s, t, time.Second); err != nil {
			return err
		}
	}
	return nil
}

// both measures both ext_proc servers in turns.
func (w *world) both(ctx context.Context, name string, n int, round func(context.Context, *side) (measured, error)) error {
	rounds, err := w.turns(ctx, name, n, []*side{w.floor, w.ours}, round)
	if err != nil {
		return err
	}
	w.ratios(name, rounds[0], rounds[1])
	w.Progress("%s: %.0f/s, do-nothing %.0f/s", name, rounds[1][0].PerSecond(), rounds[0][0].PerSecond())
	return nil
}

// turns measures sides in turns and adds a sample of each to its rows. rounds[i]
// are those of sides[i].
func (w *world) turns(ctx context.Context, name string, n int, sides []*side, round func(context.Context, *side) (measured, error)) (rounds [][]measured, err error) {
	rounds = make([][]measured, len(sides))
	var turns []func(context.Context, int) error
	for i, s := range sides {
		turns = append(turns, func(ctx context.Context, _ int) error {
			m, err := round(ctx, s)
			rounds[i] = append(rounds[i], m)
			return err
		})
	}
	if err := suite.InTurns(ctx, n, turns...); err != nil {
		return nil, err
	}
	for i, s := range sides {
		for _, m := range rounds[i] {
			w.record(name, s, m)
		}
		if err := w.memory(name, s); err != nil {
			return nil, err
		}
	}
	return rounds, nil
}

func (w *world) ratios(name string, floor, ours []measured) {
	for i := range ours {
		w.Add("dataplane/"+name+"/ratio/vs-do-nothing", "ratio", "more", ours[i].PerSecond()/floor[i].PerSecond())
		w.Add("dataplane/"+name+"/ratio/p99-vs-do-nothing", "ratio", "less", ours[i].P99.Seconds()/floor[i].P99.Seconds())
	}
}

// record adds a round's rows.
func (w *world) record(name string, s *side, m measured) {
	row := w.section + "/" + name + "/" + s.name + "/"
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	w.Add(row+"rps", "requests/s", "more", m.PerSecond())
	w.Add(row+"p50", "µs", "less", micros(m.P50))
	w.Add(row+"p99", "µs", "less", micros(m.P99))
	w.Add(row+"p99.9", "µs", "less", micros(m.P999))
	w.Add(row+"envoy-cpu", "µs/request", "less", micros(m.envoyCPU))
	if s.server != nil {
		w.Add(row+"server-cpu", "µs/request", "less", micros(m.serverCPU))
	}
}

// memory adds the memory of the processes of a side after its rounds.
func (w *world) memory(name string, s *side) error {
	for _, p := range []struct {
		what string
		*suite.Process
	}{{"envoy-memory", s.envoy}, {"server-memory", s.server}} {
		if p.Process == nil {
			continue
		}
		bytes, err := p.Memory()
		if err != nil {
			return err
		}
		w.Add(w.section+"/"+name+"/"+s.name+"/"+p.what, "MB", "less", bytes/(1<<20))
	}
	return nil
}
