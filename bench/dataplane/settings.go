package dataplane

import (
	"context"
	"fmt"
	"strings"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/envoy"
)

// settingsRounds is how many rounds settings needs.
const settingsRounds = 3

// settings compares the gateway as it ships with other settings of its Go runtime:
// several gateways, each behind its own Envoy, in turns.
func (w *world) settings(ctx context.Context) error {
	if w.Rounds < settingsRounds { // fewer rounds cannot tell the settings apart
		return nil
	}
	t := w.single(connections)
	sides := []*side{}
	defer func() {
		for _, s := range sides {
			s.stop()
		}
	}()
	for i, env := range [][]string{nil, {"GOMAXPROCS=1"}, {"GOMAXPROCS=2"}, {"GOGC=100"}, {"GOGC=800"}} {
		name := strings.ToLower(strings.ReplaceAll(strings.Join(env, "-"), "=", ""))
		if env == nil {
			name = "as-shipped"
		}
		g, err := w.cluster.StartGateway(ctx, fmt.Sprintf("settings-%d", i), env)
		if err != nil {
			return err
		}
		s := &side{name: name, server: g.Process}
		if s.envoy, s.address, err = startEnvoy(ctx, w.Env, fmt.Sprintf("envoy-settings-%d", i), envoy.Options{RunDir: g.RunDir}, 1, nil); err != nil {
			g.Stop()
			return err
		}
		sides = append(sides, s)
	}
	rounds := make([][]measured, len(sides))
	var turns []func(context.Context, int) error
	for i, s := range sides {
		if _, err := w.closed(ctx, s, t, w.RoundTime/4); err != nil {
			return err
		}
		turns = append(turns, func(ctx context.Context, _ int) error {
			m, err := w.closed(ctx, s, t, w.RoundTime)
			rounds[i] = append(rounds[i], m)
			return err
		})
	}
	if err := suite.InTurns(ctx, w.Rounds, turns...); err != nil {
		return err
	}
	for i, s := range sides {
		for round, m := range rounds[i] {
			w.record("settings", s, m)
			w.Add("dataplane/settings/"+s.name+"/vs-as-shipped", "ratio", "more", m.PerSecond()/rounds[0][round].PerSecond())
		}
		w.Progress("settings: %s: %.3f of as shipped, %.1f µs of the gateway a request", s.name,
			w.Row("dataplane/settings/"+s.name+"/vs-as-shipped").Summary().Median, w.Row("dataplane/settings/"+s.name+"/server-cpu").Summary().Median)
	}
	return nil
}
