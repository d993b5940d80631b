package dataplane

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/test/result"
)

// results counts the requests that the module has seen, by result.
func (w *fastWorld) results(ctx context.Context) (map[string]float64, error) {
	return w.fastGateway.Metric(ctx, "sandlane_fastpath_requests_total", "result")
}

// counted runs a case and adds the share of its requests that Envoy answered by itself. It
// fails if the share is not between least and most percent: then the case has not measured
// what its name says.
func (w *fastWorld) counted(ctx context.Context, name string, least, most float64, run func(context.Context) error) error {
	before, err := w.results(ctx)
	if err != nil {
		return err
	}
	if err := run(ctx); err != nil {
		return err
	}
	var share float64
	err = suite.Await(ctx, func(ctx context.Context) error { // the gateway counts at its next heartbeat
		after, err := w.results(ctx)
		if err != nil {
			return err
		}
		var all float64
		for name, n := range after {
			all += n - before[name]
		}
		share, err = result.Share(after["hit"]-before["hit"], all)
		return err
	})
	if err != nil {
		return fmt.Errorf("how many requests Envoy answered by itself: %w", err)
	}
	w.Add("fastpath/"+name+"/sandlane-fast/share", "%", "", share)
	if !(share >= least && share <= most) {
		return fmt.Errorf("Envoy answered %.1f %% of the requests by itself, not %g to %g %%", share, least, most)
	}
	return nil
}

// spent is the CPU time of Envoy and of the server behind it for one request.
func (m measured) spent() float64 { return float64(m.envoyCPU + m.serverCPU) }

// hitsOfOneStart is how many rounds of each side are run by the same processes. Two starts of
// one Envoy differ by more than two rounds: by up to a fifth of the CPU for a request.
const hitsOfOneStart = 2

// fastHit is the headline: all four sides in turns.
func (w *fastWorld) fastHit(ctx context.Context) error {
	for left := w.pairs(); left > 0; left -= hitsOfOneStart {
		if left < w.pairs() {
			if err := w.startAll(ctx, 1, 1); err != nil {
				return err
			}
		}
		if err := w.fastHits(ctx, min(left, hitsOfOneStart)); err != nil {
			return err
		}
	}
	w.Progress("hit: %.3f of plain Envoy, %.3f of the do-nothing server, %.3f of its CPU", w.Row("fastpath/hit/ratio/vs-plain").Summary().Median,
		w.Row("fastpath/hit/ratio/vs-do-nothing").Summary().Median, w.Row("fastpath/hit/ratio/cpu-vs-plain").Summary().Median)
	return nil
}

// fastHits measures n rounds of hits with the processes that run.
func (w *fastWorld) fastHits(ctx context.Context, n int) error {
	t := w.single(connections)
	sides := []*side{w.plain, w.floor, w.ours, w.fast}
	for _, s := range sides {
		if _, err := w.closed(ctx, s, t, time.Second); err != nil {
			return err
		}
	}
	return w.counted(ctx, "hit", 99, 100, func(ctx context.Context) error {
		rounds, err := w.turns(ctx, "hit", n, sides, func(ctx context.Context, s *side) (measured, error) {
			return w.closed(ctx, s, t, w.fastTime())
		})
		if err != nil {
			return err
		}
		for i, fast := range rounds[3] {
			plain, floor, ours := rounds[0][i], rounds[1][i], rounds[2][i]
			w.Add("fastpath/hit/ratio/vs-plain", "ratio", "more", fast.PerSecond()/plain.PerSecond())
			w.Add("fastpath/hit/ratio/vs-do-nothing", "ratio", "more", fast.PerSecond()/floor.PerSecond())
			w.Add("fastpath/hit/ratio/vs-without", "ratio", "more", fast.PerSecond()/ours.PerSecond())
			w.Add("fastpath/hit/ratio/cpu-vs-plain", "ratio", "less", fast.spent()/plain.spent())
		}
		return nil
	})
}

// fastOne measures the latency with one connection.
func (w *fastWorld) fastOne(ctx context.Context) error {
	return w.counted(ctx, "one", 99, 100, func(ctx context.Context) error {
		rounds, err := w.turns(ctx, "one", w.Judged, []*side{w.plain, w.floor, w.ours, w.fast}, func(ctx context.Context, s *side) (measured, error) {
			return w.closed(ctx, s, w.single(1), w.fastTime())
		})
		if err != nil {
			return err
		}
		for i, fast := range rounds[3] {
			w.Add("fastpath/one/ratio/p50-vs-plain", "ratio", "less", fast.P50.Seconds()/rounds[0][i].P50.Seconds())
			w.Add("fastpath/one/ratio/p99-vs-plain", "ratio", "less", fast.P99.Seconds()/rounds[0][i].P99.Seconds())
		}
		w.Progress("one: p50 %v, plain %v, do-nothing %v", rounds[3][0].P50, rounds[0][0].P50, rounds[1][0].P50)
		return nil
	})
}

// fastWorkers compares two worker threads of Envoy with one. It needs three cores: one for
// each thread, and one for the load and the sandboxes.
func (w *fastWorld) fastWorkers(ctx context.Context) error {
	if runtime.NumCPU() < 3 {
		w.Note("fastpath: two of Envoy's workers are not compared with one, which takes three cores")
		return nil
	}
	t, name := w.single(connections), "workers2"
	var rates [2]float64
	for round := range w.Judged {
		for i, workers := range []int{1, 2} {
			if err := w.startFast(ctx, workers); err != nil {
				return err
			}
			m, err := w.closed(ctx, w.fast, t, w.fastTime())
			if err != nil {
				return err
			}
			rates[i] = m.PerSecond()
		}
		w.Add("fastpath/"+name+"/ratio/vs-one-worker", "ratio", "more", rates[1]/rates[0])
		w.Progress("%s: round %d: %.0f/s, one worker %.0f/s", name, round, rates[1], rates[0])
	}
	return w.startFast(ctx, 1)
}
