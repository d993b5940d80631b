package dataplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandlane/sandlane/bench/load"
	"github.com/sandlane/sandlane/bench/result"
	"github.com/sandlane/sandlane/bench/suite"
)

// The rows of the headline.
const (
	HeadlineVsDoNothing = "dataplane/hit/ratio/vs-do-nothing"
	HeadlineVsPlain     = "dataplane/hit/ratio/vs-plain"
)

const connections = 32

// Section is the package's.
func Section() suite.Section {
	return suite.Section{Name: "dataplane", About: "requests through Envoy: plain, with a do-nothing ext_proc server, with Sandlane", Run: run}
}

func run(ctx context.Context, e *suite.Env) error {
	w, err := newWorld(ctx, e)
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
	}{
		{"hit", w.hit}, {"one", w.one}, {"open", w.openLoop}, {"workers2", w.twoWorkers}, {"settings", w.settings},
		{"fleets", w.fleets}, {"misses", w.misses}, {"busy", w.busy},
	} {
		if !w.Wants(c.name) {
			continue
		}
		if err := c.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// single asks one sandbox over so many connections.
func (w *world) single(connections int) load.Target {
	return load.Target{Hosts: []string{w.cluster.Host("b0")}, Connections: connections}
}

// tune tries what suits the floor best.
func (w *world) tune(ctx context.Context) error {
	best := 0.0
	for _, env := range [][]string{
		{"GOMAXPROCS=1", "GOGC=100"}, {"GOMAXPROCS=1", "GOGC=400"}, {"GOMAXPROCS=2", "GOGC=100"}, {"GOMAXPROCS=2", "GOGC=400"},
	} {
		s, err := w.startFloor(ctx, 1, 1, env)
		if err != nil {
			return err
		}
		var rates []float64
		for range max(w.Rounds-1, 1) {
			m, roundErr := w.closed(ctx, s, w.single(connections), w.RoundTime/3)
			rates, err = append(rates, m.PerSecond()), errors.Join(err, roundErr)
		}
		s.envoy.Stop()
		s.server.Stop()
		if err != nil {
			return err
		}
		if r := result.Median(rates); r > best {
			best, w.tuning = r, env
		}
	}
	w.Note("the do-nothing server runs with %v, the best of four for it here", w.tuning)
	return nil
}

// hit is the headline: pairs of both ext_proc servers, with a shorter round of
// plain Envoy in each.
func (w *world) hit(ctx context.Context) error {
	t := w.single(connections)
	if err := w.warm(ctx, t); err != nil {
		return err
	}
	floor, ours, bare := make([]measured, w.Pairs), make([]measured, w.Pairs), make([]measured, w.Pairs)
	err := suite.InTurns(ctx, w.Pairs,
		func(ctx context.Context, i int) (err error) {
			floor[i], err = w.closed(ctx, w.floor, t, w.PairTime)
			return err
		},
		func(ctx context.Context, i int) (err error) {
			ours[i], err = w.closed(ctx, w.ours, t, w.PairTime)
			w.Progress("hit: round %d of %d: %.0f/s", i+1, w.Pairs, ours[i].PerSecond())
			return err
		},
	)
	if err != nil {
		return err
	}
	for i := range bare {
		if bare[i], err = w.closed(ctx, w.plain, t, w.PairTime/2); err != nil {
			return err
		}
	}
	for i := range ours {
		w.record("hit", w.floor, floor[i])
		w.record("hit", w.ours, ours[i])
		w.record("hit", w.plain, bare[i])
	}
	w.ratios("hit", floor, ours)
	for i := range ours {
		w.Add(HeadlineVsPlain, "ratio", "more", ours[i].PerSecond()/bare[i].PerSecond())
	}
	w.Row(HeadlineVsDoNothing).Budget = &result.Budget{More: true, Value: 0.95}
	w.Row("dataplane/hit/ratio/p99-vs-do-nothing").Budget = &result.Budget{Value: 1.1}
	w.Progress("hit: %.3f of the do-nothing server, %.3f of plain Envoy", w.Row(HeadlineVsDoNothing).Summary().Median, w.Row(HeadlineVsPlain).Summary().Median)
	return w.memory("hit")
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
func (w *world) both(ctx context.Context, name string, round func(context.Context, *side) (measured, error)) error {
	floor, ours := make([]measured, w.Rounds), make([]measured, w.Rounds)
	one := func(s *side, into []measured) func(context.Context, int) error {
		return func(ctx context.Context, i int) (err error) {
			into[i], err = round(ctx, s)
			return err
		}
	}
	if err := suite.InTurns(ctx, w.Rounds, one(w.floor, floor), one(w.ours, ours)); err != nil {
		return err
	}
	for i := range ours {
		w.record(name, w.floor, floor[i])
		w.record(name, w.ours, ours[i])
	}
	w.ratios(name, floor, ours)
	w.Progress("%s: %.0f/s, do-nothing %.0f/s", name, ours[0].PerSecond(), floor[0].PerSecond())
	return nil
}

func (w *world) ratios(name string, floor, ours []measured) {
	for i := range ours {
		w.Add("dataplane/"+name+"/ratio/vs-do-nothing", "ratio", "more", ours[i].PerSecond()/floor[i].PerSecond())
		w.Add("dataplane/"+name+"/ratio/p99-vs-do-nothing", "ratio", "less", ours[i].P99.Seconds()/floor[i].P99.Seconds())
	}
}

// record adds a round's rows.
func (w *world) record(name string, s *side, m measured) {
	row := "dataplane/" + name + "/" + s.name + "/"
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

// memory adds what the processes hold.
func (w *world) memory(name string) error {
	for _, s := range []*side{w.plain, w.floor, w.ours} {
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
			w.Add("dataplane/"+name+"/"+s.name+"/"+p.what, "MB", "less", bytes/(1<<20))
		}
	}
	return nil
}
