package dataplane

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sandlane/sandlane/bench/load"
	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/envoy"
)

// sparseRates are requests a second to each sandbox of a fleet. At the lower one
// Envoy has closed its connection to a sandbox before the next request comes.
var sparseRates = []float64{0.2, 1}

// sparse sends requests to each sandbox of the largest fleet at a low rate, at fixed times.
func (w *world) sparse(ctx context.Context) error {
	hosts, err := w.largest(ctx)
	if err != nil {
		return err
	}
	if err := w.startSides(ctx, 1, len(hosts)); err != nil {
		return err
	}
	t := fleet{load.Target{Hosts: hosts, Connections: connections}}
	most, err := w.capacity(ctx, w.floor)
	if err != nil {
		return err
	}
	for _, s := range []*side{w.floor, w.ours} {
		if err := w.knowAll(ctx, s, t.Target); err != nil {
			return err
		}
	}
	for _, each := range sparseRates {
		name, t := fmt.Sprintf("sparse-%g", each), t.upTo(most/each)
		rounds, err := w.turns(ctx, name, w.Rounds, []*side{w.floor, w.ours}, func(ctx context.Context, s *side) (measured, error) {
			return w.open(ctx, s, t.Target, w.RoundTime, each*float64(len(t.Hosts)))
		})
		if err != nil {
			return err
		}
		w.Add("dataplane/"+name+"/both/sandboxes", "sandboxes", "", float64(len(t.Hosts)))
		w.Progress("%s: Envoy takes %v a request, beside the do-nothing server %v", name, rounds[1][0].envoyCPU, rounds[0][0].envoyCPU)
	}
	return nil
}

// intervals compares times for which Envoy keeps unused addresses (cleanup_interval),
// beside the do-nothing server, and measures the memory of an address that it keeps.
func (w *world) intervals(ctx context.Context) error {
	hosts, err := w.largest(ctx)
	if err != nil {
		return err
	}
	dir, err := w.Folder("intervals")
	if err != nil {
		return err
	}
	server, err := w.startFloorServer(ctx, dir, len(hosts), w.tuning)
	if err != nil {
		return err
	}
	defer server.Stop()
	t := fleet{load.Target{Hosts: hosts, Connections: connections}}
	for _, every := range []time.Duration{5 * time.Second, 30 * time.Second, time.Minute, 10 * time.Minute} {
		if err := w.interval(ctx, server, filepath.Join(dir, envoy.ExtProcSocketName), every, t); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) interval(ctx context.Context, server *suite.Process, extProc string, every time.Duration, t fleet) error {
	name := "intervals-" + every.String()
	dir, err := w.Folder(name)
	if err != nil {
		return err
	}
	s := &side{name: "do-nothing", server: server}
	s.envoy, s.address, err = startEnvoy(ctx, w.Env, "envoy-"+name, envoy.Options{RunDir: dir, ExtProcSocket: extProc}, 1, func(b *bootstrapv3.Bootstrap) error {
		for _, c := range b.GetStaticResources().GetClusters() {
			if c.GetName() == envoy.SandboxCluster {
				c.CleanupInterval = durationpb.New(every)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer s.envoy.Stop()
	most, err := w.capacity(ctx, s)
	if err != nil {
		return err
	}
	before, err := s.envoy.Memory()
	if err != nil {
		return err
	}
	if err := w.knowAll(ctx, s, t.Target); err != nil {
		return err
	}
	after, err := s.envoy.Memory()
	if err != nil {
		return err
	}
	w.Add("dataplane/"+name+"/do-nothing/host-memory", "kB", "less", (after-before)/1024/float64(len(t.Hosts)))
	for _, each := range sparseRates {
		t := t.upTo(most / each)
		m, err := w.open(ctx, s, t.Target, w.RoundTime, each*float64(len(t.Hosts)))
		if err != nil {
			return err
		}
		w.record(fmt.Sprintf("%s-%g", name, each), s, m)
		w.Progress("%s, %d sandboxes with %g requests/s each: Envoy takes %v a request, p99 %v", name, len(t.Hosts), each, m.envoyCPU, m.P99)
	}
	return nil
}

// fleet is a target with many hosts.
type fleet struct{ load.Target }

// upTo returns the fleet with n hosts at most.
func (t fleet) upTo(n float64) fleet {
	t.Hosts = t.Hosts[:min(len(t.Hosts), max(1, int(n)))]
	return t
}

// capacity returns half of the requests that a side answers in a second for one sandbox,
// which is the highest rate of an open loop.
func (w *world) capacity(ctx context.Context, s *side) (float64, error) {
	m, err := w.closed(ctx, s, w.single(connections), max(time.Second, w.RoundTime/4))
	return m.PerSecond() / 2, err
}

// largest makes the largest fleet and returns its hosts.
func (w *world) largest(ctx context.Context) ([]string, error) {
	return w.cluster.Fleet(ctx, w.Fleets[len(w.Fleets)-1])
}

// knowAll sends one request to each sandbox, so that Envoy knows its address.
func (w *world) knowAll(ctx context.Context, s *side, t load.Target) error {
	t.Address = s.address
	r, err := load.Once(ctx, t, time.Minute)
	if err == nil {
		err = r.Check()
	}
	if err != nil {
		return fmt.Errorf("use all sandboxes of %s: %w", s.name, err)
	}
	return nil
}
