package dataplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sandlane/sandlane/bench/load"
	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/envoy"
)

// world is all processes of the section: API server, upstreams, and the three sides.
type world struct {
	*suite.Env
	section   string // first part of its rows' names
	cluster   *suite.Cluster
	upstreams upstreams
	gateway   *suite.Gateway
	tuning    []string // the floor's environment

	plain, floor, ours *side
}

func newWorld(ctx context.Context, e *suite.Env, section string) (w *world, err error) {
	w = &world{Env: e, section: section}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.upstreams, err = startUpstreams(ctx, e); err != nil {
		return w, err
	}
	w.cluster, err = e.StartCluster(ctx, w.upstreams.ours.port)
	return w, err
}

func (w *world) close() {
	w.stopSides()
	w.upstreams.stop()
	if w.cluster != nil {
		w.cluster.Close()
	}
}

// startSides starts all three sides with that many Envoy workers. The floor knows count
// sandboxes; args are further flags of the gateway.
func (w *world) startSides(ctx context.Context, workers, count int, args ...string) error {
	w.stopSides()
	var err error
	if w.plain, err = w.startPlain(ctx, workers); err != nil {
		return err
	}
	if w.floor, err = w.startFloor(ctx, "floor", workers, count, w.tuning); err != nil {
		return err
	}
	if w.gateway, err = w.cluster.StartGateway(ctx, "gateway", nil, args...); err != nil {
		return err
	}
	w.ours = &side{name: "sandlane", server: w.gateway.Process}
	w.ours.envoy, w.ours.address, err = startEnvoy(ctx, w.Env, "envoy-sandlane", envoy.Options{RunDir: w.gateway.RunDir}, workers, nil)
	return err
}

func (w *world) stopSides() {
	for _, s := range []**side{&w.plain, &w.floor, &w.ours} {
		if *s != nil {
			(*s).stop()
			*s = nil
		}
	}
}

func (w *world) startPlain(ctx context.Context, workers int) (*side, error) {
	dir, err := w.Folder("plain")
	if err != nil {
		return nil, err
	}
	s := &side{name: "plain"}
	s.envoy, s.address, err = startEnvoy(ctx, w.Env, "envoy-plain", envoy.Options{RunDir: dir}, workers, plain(w.upstreams.plain.port))
	return s, err
}

// startFloor runs a do-nothing server that knows count sandboxes, in a folder of
// that name.
func (w *world) startFloor(ctx context.Context, name string, workers, count int, tuning []string) (*side, error) {
	dir, err := w.Folder(name)
	if err != nil {
		return nil, err
	}
	s := &side{name: "do-nothing"}
	if s.server, err = w.startFloorServer(ctx, dir, count, tuning); err != nil {
		return nil, err
	}
	if s.envoy, s.address, err = startEnvoy(ctx, w.Env, "envoy-"+name, envoy.Options{RunDir: dir}, workers, nil); err != nil {
		s.server.Stop()
	}
	return s, err
}

func (w *world) startFloorServer(ctx context.Context, dir string, count int, tuning []string) (*suite.Process, error) {
	socket := filepath.Join(dir, envoy.ExtProcSocketName)
	_ = os.Remove(socket)
	return w.Start(ctx, "floor", tuning, suite.Answers("unix", socket), w.Floor,
		"--socket", socket, "--first", suite.FirstAddress, "--count", strconv.Itoa(count), "--port", strconv.Itoa(w.upstreams.floor.port),
		"--named-port", strconv.Itoa(w.upstreams.ours.port)) // requests to all sides have the same names
}

// measured is one round on one side.
type measured struct {
	load.Report
	envoyCPU, serverCPU time.Duration // per request
}

// closed measures one round of a closed loop and the CPU time it took.
func (w *world) closed(ctx context.Context, s *side, t load.Target, d time.Duration) (measured, error) {
	return w.measure(s, func() (load.Report, error) {
		t.Address = s.address
		return load.Closed(ctx, w.Wrk, t, d)
	})
}

func (w *world) open(ctx context.Context, s *side, t load.Target, d time.Duration, rate float64) (measured, error) {
	return w.measure(s, func() (load.Report, error) {
		t.Address = s.address
		return load.Open(ctx, t, d, rate)
	})
}

func (w *world) measure(s *side, run func() (load.Report, error)) (measured, error) {
	before, err := s.used()
	if err != nil {
		return measured{}, err
	}
	r, err := run()
	if err != nil {
		return measured{}, fmt.Errorf("load on %s: %w", s.name, err)
	}
	if err := r.Check(); err != nil {
		return measured{}, fmt.Errorf("load on %s: %w", s.name, errors.Join(err, w.ended()))
	}
	after, err := s.used()
	if err != nil {
		return measured{}, err
	}
	per := func(i int) time.Duration { return (after[i] - before[i]) / time.Duration(r.Requests) }
	return measured{Report: r, envoyCPU: per(0), serverCPU: per(1)}, nil
}

// ended returns an error that names a process under test which has ended, which is then why
// requests failed; nil if all run.
func (w *world) ended() error {
	processes := []*suite.Process{w.upstreams.plain.Process, w.upstreams.floor.Process, w.upstreams.ours.Process}
	for _, s := range []*side{w.plain, w.floor, w.ours} {
		if s != nil {
			processes = append(processes, s.envoy, s.server)
		}
	}
	var errs []error
	for _, p := range processes {
		if p != nil {
			errs = append(errs, p.Ended())
		}
	}
	return errors.Join(errs...)
}

// used is the CPU time of Envoy and of the server behind it.
func (s *side) used() (cpu [2]time.Duration, err error) {
	if cpu[0], err = s.envoy.CPU(); err != nil || s.server == nil {
		return cpu, err
	}
	cpu[1], err = s.server.CPU()
	return cpu, err
}
