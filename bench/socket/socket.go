package socket

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/test/result"
)

const (
	routes  = 100_000
	port    = 8000
	streams = 64 // at once
)

// Section returns the section of this package.
func Section() suite.Section {
	return suite.Section{Name: "socket", About: "the ExtProc server alone over a unix socket, 100,000 routes", Run: run}
}

// side is a server and a connection to it.
type side struct {
	name string
	*suite.Process
	*client
}

func run(ctx context.Context, e *suite.Env) error {
	dir, err := e.Folder("socket")
	if err != nil {
		return err
	}
	requests := make([][]byte, routes)
	for i := range requests {
		if requests[i], err = request(fmt.Sprintf("%d-b%d.localhost", port, i)); err != nil {
			return fmt.Errorf("encode a request: %w", err)
		}
	}
	if err := alone(ctx, e, dir, requests); err != nil {
		return err
	}
	return gateway(ctx, e, requests)
}

// alone measures the server and its floor. Both have ended when it returns.
func alone(ctx context.Context, e *suite.Env, dir string, requests [][]byte) error {
	start := func(name string, env []string, path string, args ...string) (side, error) {
		socket := filepath.Join(dir, name+".sock")
		_ = os.Remove(socket)
		p, err := e.Start(ctx, name, env, suite.Answers("unix", socket), path, append(args, "--socket", socket)...)
		if err != nil {
			return side{}, err
		}
		c, err := dial(socket, requests)
		if err != nil {
			p.Stop()
			return side{}, err
		}
		return side{name, p, c}, nil
	}
	startFloor := func(name string, env []string) (side, error) {
		return start(name, env, e.Floor, "--count", strconv.Itoa(routes), "--first", suite.FirstAddress, "--port", strconv.Itoa(port))
	}
	env, err := tune(ctx, e, startFloor)
	if err != nil {
		return err
	}
	floor, err := startFloor("do-nothing", env)
	if err != nil {
		return err
	}
	defer floor.close()
	// As many threads as a gateway has: it leaves the other half of the machine to Envoy.
	ours, err := start("sandlane", []string{fmt.Sprintf("GOMAXPROCS=%d", (runtime.NumCPU()+1)/2)}, e.Self, "extproc", "--routes", strconv.Itoa(routes))
	if err != nil {
		return err
	}
	defer ours.close()
	if err := inTurns(ctx, e, floor, ours); err != nil {
		return err
	}
	for _, s := range []side{floor, ours} {
		if err := allocations(ctx, e, s); err != nil {
			return err
		}
	}
	return nil
}

// tune finds the settings under which the floor is the fastest.
func tune(ctx context.Context, e *suite.Env, start func(name string, env []string) (side, error)) ([]string, error) {
	return e.TuneFloor(ctx, "socket", func(ctx context.Context, name string, env []string) (suite.Tried, error) {
		s, err := start(name, env)
		if err != nil {
			return suite.Tried{}, err
		}
		return suite.Tried{Stop: s.close, Round: func(ctx context.Context) (float64, error) {
			r, err := s.round(ctx, streams, e.PairTime/10)
			return r.PerSecond(), err
		}}, nil
	})
}

func (s side) close() {
	_ = s.conn.Close()
	s.Stop()
}

// inTurns measures both sides.
func inTurns(ctx context.Context, e *suite.Env, floor, ours side) error {
	name := fmt.Sprintf("socket/streams-%d/", streams)
	d := e.PairTime / 5
	for _, s := range []side{floor, ours} {
		if _, err := s.round(ctx, streams, d); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	rates, cpus := map[string][]float64{}, map[string][]float64{}
	one := func(s side) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			before, err := s.CPU()
			if err != nil {
				return err
			}
			r, err := s.round(ctx, streams, d)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			after, err := s.CPU()
			if err != nil {
				return err
			}
			cpu := float64((after - before).Microseconds()) / float64(r.Requests)
			rates[s.name], cpus[s.name] = append(rates[s.name], r.PerSecond()), append(cpus[s.name], cpu)
			e.Add(name+s.name+"/rps", "requests/s", "more", r.PerSecond())
			e.Add(name+s.name+"/server-cpu", "µs/request", "less", cpu)
			return nil
		}
	}
	if err := suite.InTurns(ctx, e.Pairs, one(floor), one(ours)); err != nil {
		return err
	}
	for i, rate := range rates[ours.name] {
		e.Add(name+"ratio/vs-do-nothing", "ratio", "more", rate/rates[floor.name][i])
		e.Add(name+"ratio/cpu-vs-do-nothing", "ratio", "less", cpus[ours.name][i]/cpus[floor.name][i])
	}
	e.Progress("streams-%d: %.0f/s %.1f µs, do-nothing %.0f/s %.1f µs", streams, result.Median(rates[ours.name]), result.Median(cpus[ours.name]),
		result.Median(rates[floor.name]), result.Median(cpus[floor.name]))
	return nil
}

// allocations measures the allocations of a server's process, which the process itself
// counts.
func allocations(ctx context.Context, e *suite.Env, s side) error {
	before, err := s.Ask()
	if err != nil {
		return err
	}
	r, err := s.round(ctx, streams, max(e.PairTime/5, time.Second))
	if err != nil {
		return err
	}
	after, err := s.Ask()
	if err != nil {
		return err
	}
	row := fmt.Sprintf("socket/streams-%d/%s/", streams, s.name)
	e.Add(row+"allocations", "a request", "less", (after-before)/float64(r.Requests))
	bytes, err := s.Memory()
	e.Add(row+"memory", "MB", "less", bytes/(1<<20))
	return err
}
