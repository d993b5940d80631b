package claims

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/test/result"
)

// oneByOne times single calls of ours and bare, in turns.
func (b *bench) oneByOne(ctx context.Context, name string, n int, ours, bare func(context.Context, int) error) error {
	var took [2][]float64
	timed := func(into *[]float64, f func(context.Context, int) error) func(context.Context, int) error {
		return func(ctx context.Context, i int) error {
			start := time.Now()
			err := f(ctx, i)
			*into = append(*into, float64(time.Since(start).Microseconds()))
			return err
		}
	}
	if err := suite.InTurns(ctx, n, timed(&took[0], bare), timed(&took[1], ours)); err != nil {
		return err
	}
	row := "claims/" + name + "/"
	for i, side := range []string{"bare", "sandlane"} {
		b.Add(row+side+"/latency", "µs", "less", took[i]...)
		b.Add(row+side+"/p99", "µs", "less", result.Quantile(took[i], 0.99))
	}
	// A pair is two medians of ten, because single writes differ by more than the ratio that is measured.
	for from := 0; from+10 <= n; from += 10 {
		b.Add(row+"ratio/p50-vs-bare", "ratio", "less", result.Median(took[1][from:from+10])/result.Median(took[0][from:from+10]))
	}
	b.Add(row+"ratio/p99-vs-bare", "ratio", "less", result.Quantile(took[1], 0.99)/result.Quantile(took[0], 0.99))
	b.Progress("%s: p50 %.1f ms, bare %.1f ms", name, result.Median(took[1])/1000, result.Median(took[0])/1000)
	return nil
}

// atOnce adds one sample of n calls at once to each side; the side that begins alternates.
func (b *bench) atOnce(ctx context.Context, name string, n int, ours, bare func(context.Context, int) error) error {
	row := "claims/" + name + "/"
	sides := []struct {
		name string
		do   func(context.Context, int) error
	}{{"bare", bare}, {"sandlane", ours}}
	if r := b.Row(row + "bare/rate"); r != nil && len(r.Samples)%2 == 1 {
		sides[0], sides[1] = sides[1], sides[0]
	}
	rate := map[string]float64{}
	for _, side := range sides {
		// The API server's heap is large: a garbage collection during a burst doubles the
		// burst's time, whichever side made the garbage.
		if err := b.cluster.CollectGarbage(ctx); err != nil {
			return err
		}
		stolen := suite.Stolen()
		before, err := suite.CPUByProgram()
		if err != nil {
			return err
		}
		each := make([]float64, n) // ms
		took, err := together(ctx, n, func(ctx context.Context, i int) error {
			start := time.Now()
			err := side.do(ctx, i)
			each[i] = float64(time.Since(start).Microseconds()) / 1000
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", side.name, err)
		}
		b.Add(row+side.name+"/p50", "ms", "less", result.Median(each))
		b.Add(row+side.name+"/p99", "ms", "less", result.Quantile(each, 0.99))
		after, err := suite.CPUByProgram()
		if err != nil {
			return err
		}
		for _, program := range slices.Sorted(maps.Keys(after)) {
			used := after[program] - before[program]
			b.Add(row+side.name+"/cpu-"+program, "ms a claim", "less", float64(used.Microseconds())/1000/float64(n))
		}
		b.Add(row+side.name+"/stolen", "% of the processors", "", 100*stolen()).Note = "given to others by the hypervisor"
		rate[side.name] = float64(n) / took.Seconds()
		b.Add(row+side.name+"/rate", "claims/s", "more", rate[side.name])
	}
	b.Add(row+"ratio/vs-bare", "ratio", "more", rate["sandlane"]/rate["bare"])
	b.Progress("%s: %.0f/s, bare %.0f/s", name, rate["sandlane"], rate["bare"])
	return nil
}

// together calls f n times at once and returns how long all took.
func together(ctx context.Context, n int, f func(context.Context, int) error) (time.Duration, error) {
	var all sync.WaitGroup
	errs := make(chan error, n)
	start := time.Now()
	for i := range n {
		all.Go(func() { errs <- f(ctx, i) })
	}
	all.Wait()
	took := time.Since(start)
	close(errs)
	for err := range errs {
		if err != nil {
			return took, err
		}
	}
	return took, nil
}
