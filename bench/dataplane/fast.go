package dataplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sandlane/sandlane/bench/load"
	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/envoy"
)

// FastSection measures hits that Envoy answers by itself: Sandlane with its module,
// beside Sandlane without it and both floors.
//
//	hit          one sandbox, 32 connections
//	one          one connection
//	left         requests that the module leaves to ExtProc, which has their route
//	misses       requests whose route neither module nor ExtProc has: each is resolved
//	             from the index
//	fleet-N      requests to N sandboxes in turn, beside an Envoy without ExtProc that
//	             takes the address from the request's host
//	workers2     Envoy with two workers, where a third core exists
func FastSection() suite.Section {
	return suite.Section{Name: "fastpath", About: "hits answered inside Envoy: plain, with a do-nothing ext_proc server, Sandlane without and with its module", Run: runFast}
}

// fastPairs is how many rounds the judged ratios have, unless the plan has fewer.
const fastPairs = 10

// memoryFolder is a folder on tmpfs, for the route table.
const memoryFolder = "/dev/shm"

// fastWorld has a fourth side: Sandlane with the module.
type fastWorld struct {
	*world
	folder      string // of the route table
	fast        *side
	fastGateway *suite.Gateway
}

func runFast(ctx context.Context, e *suite.Env) error {
	if e.Module == "" {
		e.Note("fastpath: not measured, since the module was not built")
		return nil
	}
	w, err := newFastWorld(ctx, e)
	if err != nil {
		return err
	}
	defer w.close()
	for _, c := range []struct {
		name string
		run  func(context.Context) error
	}{{"hit", w.fastHit}, {"one", w.fastOne}, {"left", w.left}, {"workers2", w.fastWorkers}, {"misses", w.fastMisses}, {"fleets", w.fastFleet}} {
		if !w.Wants(c.name) {
			continue
		}
		if err := c.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.name, errors.Join(err, w.fastEnded()))
		}
	}
	return nil
}

func newFastWorld(ctx context.Context, e *suite.Env) (*fastWorld, error) {
	base, err := newWorld(ctx, e, "fastpath")
	if err != nil {
		return nil, err
	}
	w := &fastWorld{world: base}
	if w.folder, err = os.MkdirTemp(memoryFolder, "slb"); err != nil {
		w.close()
		return nil, fmt.Errorf("make the route table's folder: %w", err)
	}
	if _, err = w.cluster.Fleet(ctx, 1); err == nil {
		err = w.tune(ctx)
	}
	if err == nil {
		err = w.startAll(ctx, 1, 1)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *fastWorld) close() {
	w.stopFast()
	w.world.close()
	if w.folder != "" {
		_ = os.RemoveAll(w.folder)
	}
}

func (w *fastWorld) stopFast() {
	if w.fast != nil {
		w.fast.stop()
		w.fast = nil
	}
}

// startAll starts all four sides anew.
func (w *fastWorld) startAll(ctx context.Context, workers, count int, args ...string) error {
	w.stopFast()
	if err := w.startSides(ctx, workers, count, args...); err != nil {
		return err
	}
	return w.startFast(ctx, workers, args...)
}

// startFast starts Sandlane with the module, and returns when Envoy is trusted.
func (w *fastWorld) startFast(ctx context.Context, workers int, args ...string) (err error) {
	w.stopFast()
	folder := envoy.FastPath{Module: w.Module, Folder: w.folder}
	if w.fastGateway, err = w.cluster.StartGateway(ctx, "gateway-fast", nil, append([]string{"--fast-path", "auto", "--fast-path-folder", w.folder}, args...)...); err != nil {
		return err
	}
	s := &side{name: "sandlane-fast", server: w.fastGateway.Process}
	if s.envoy, s.address, err = startEnvoy(ctx, w.Env, "envoy-fast", envoy.Options{RunDir: w.fastGateway.RunDir, FastPath: folder}, workers, nil); err != nil {
		w.fastGateway.Stop()
		return err
	}
	w.fast = s
	t := w.single(1)
	t.Address = s.address
	return suite.Await(ctx, func(ctx context.Context) error { // the first request makes Envoy open the table
		r, err := load.Once(ctx, t, time.Minute)
		if err == nil {
			err = r.Check()
		}
		if err != nil {
			return err
		}
		trusted, err := w.fastGateway.Metric(ctx, "sandlane_fastpath_trusted", "")
		if err == nil && trusted[""] != 1 {
			err = errors.New("Envoy does not answer from the route table")
		}
		return err
	})
}

// fastEnded returns an error if a process of the fourth side has ended.
func (w *fastWorld) fastEnded() error {
	if w.fast == nil {
		return nil
	}
	return errors.Join(w.fast.envoy.Ended(), w.fast.server.Ended())
}

func (w *fastWorld) pairs() int { return min(w.Pairs, fastPairs) }

// fastTime is the length of this section's rounds, which are short because CPU per request
// needs no long ones.
func (w *fastWorld) fastTime() time.Duration { return w.PairTime / 5 }
