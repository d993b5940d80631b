package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sandlane/sandlane/test/result"
)

// Tried is a floor that runs with the settings to be tried.
type Tried struct {
	Round func(context.Context) (perSecond float64, err error)
	Stop  func()
}

// TuneFloor starts the do-nothing server of a section with each of a few settings of its Go
// runtime, measures them in turns, stops them, and returns the fastest by its
// median. The caller measures Sandlane against that one. A second call for the same section
// in a run returns the settings that the first one found.
func (e *Env) TuneFloor(ctx context.Context, section string, start func(ctx context.Context, name string, env []string) (Tried, error)) ([]string, error) {
	if found := e.tuned[section]; found != nil {
		return slices.Clone(found), nil
	}
	settings := [][]string{
		{"GOMAXPROCS=1", "GOGC=100"}, {"GOMAXPROCS=1", "GOGC=400"}, {"GOMAXPROCS=2", "GOGC=100"}, {"GOMAXPROCS=2", "GOGC=400"},
	}
	rounds := e.Judged // as many as for a budget, since budgets depend on the choice
	rates := make([][]float64, len(settings))
	var turns []func(context.Context, int) error
	for i, env := range settings {
		tried, err := start(ctx, fmt.Sprintf("floor-%d", i), env)
		if err != nil {
			return nil, err
		}
		defer tried.Stop()
		if _, err := tried.Round(ctx); err != nil { // warms it
			return nil, err
		}
		turns = append(turns, func(ctx context.Context, _ int) error {
			rate, err := tried.Round(ctx)
			rates[i] = append(rates[i], rate)
			return err
		})
	}
	if err := InTurns(ctx, rounds, turns...); err != nil {
		return nil, err
	}
	best, rated := 0, []string{}
	for i, env := range settings {
		if result.Median(rates[i]) > result.Median(rates[best]) {
			best = i
		}
		rated = append(rated, fmt.Sprintf("%s %.0f/s", strings.Join(env, " "), result.Median(rates[i])))
	}
	e.Note("%s: the do-nothing server runs with %s, the fastest of those tried here in %d rounds in turns: %s", section, strings.Join(settings[best], " "), rounds, strings.Join(rated, ", "))
	if e.tuned == nil {
		e.tuned = map[string][]string{}
	}
	e.tuned[section] = settings[best]
	return slices.Clone(settings[best]), nil
}
