package socket

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/test/result"
)

// gateway measures a whole gateway, with a real API server that has as many sandboxes as
// there are requests: the time until it serves, and its memory then and when every sandbox
// has a route.
func gateway(ctx context.Context, e *suite.Env, requests [][]byte) error {
	n := min(e.Objects, len(requests))
	cluster, err := e.StartCluster(ctx, port)
	if err != nil {
		return err
	}
	defer cluster.Close()
	if _, err := cluster.Fleet(ctx, n); err != nil {
		return err
	}
	start := time.Now()
	// A cache for exactly n routes would evict from shards that get more than their share.
	g, err := cluster.StartGateway(ctx, "whole", nil, "--cache-size", fmt.Sprint(n+n/8+1024))
	if err != nil {
		return err
	}
	defer g.Stop()
	row := fmt.Sprintf("socket/gateway-%d/sandlane/", n)
	e.Add(row+"start", "s", "less", time.Since(start).Seconds())
	if err := memory(e, g, row+"memory-without-routes"); err != nil {
		return err
	}
	c, err := dial(filepath.Join(g.RunDir, envoy.ExtProcSocketName), requests[:n])
	if err != nil {
		return err
	}
	defer func() { _ = c.conn.Close() }()
	// Two requests for each sandbox: the first makes the route, the second must find it.
	for _, pass := range []string{"resolved", "hit"} {
		before, err := g.Answers(ctx)
		if err != nil {
			return err
		}
		r, err := c.once(ctx, 64)
		if err != nil {
			return fmt.Errorf("ask for every sandbox: %w", err)
		}
		after, err := g.Answers(ctx)
		if err != nil {
			return err
		}
		if got := after[pass] - before[pass]; got != float64(n) {
			return fmt.Errorf("of %d requests %.0f were %s", n, got, pass)
		}
		e.Add(row+pass+"-rate", "requests/s", "more", r.PerSecond())
	}
	if err := memory(e, g, row+"memory"); err != nil {
		return err
	}
	e.Progress("a gateway with %d routes: %.0f MB, serving after %.1f s", n, result.Median(e.Row(row+"memory").Samples), result.Median(e.Row(row+"start").Samples))
	return nil
}

// memory adds the memory of the process.
func memory(e *suite.Env, g *suite.Gateway, row string) error {
	bytes, err := g.Memory()
	if err != nil {
		return err
	}
	e.Add(row, "MB", "less", bytes/(1<<20))
	return nil
}
