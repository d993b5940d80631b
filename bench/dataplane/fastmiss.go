package dataplane

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/bench/load"
	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/envoy"
)

const (
	// generatedID has the form of the IDs that gateways make up.
	generatedID = "i0123456789abcdefghij"
	// missFleet is how many sandboxes get the misses. It is so small that twice as many
	// connections fit the limit of open files of the sandboxes' server.
	missFleet = 2_000
)

// left names the sandbox by an ID of E2B's former form, with a suffix, which the module
// leaves to ExtProc. It measures what the module's work costs such a request.
func (w *fastWorld) left(ctx context.Context) error {
	binding, err := w.cluster.MakeClaimed(ctx, generatedID)
	if err != nil {
		return err
	}
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: generatedID}}
	s.Spec.Namespace, s.Spec.Pool, s.Spec.Binding = suite.Namespace, suite.Pool, &binding
	if err := w.cluster.Client.Create(ctx, s); err != nil {
		return fmt.Errorf("make a sandbox: %w", err)
	}
	t := load.Target{Hosts: []string{w.cluster.Host(generatedID + "-x")}, Connections: connections}
	return w.withAndWithout(ctx, "left", t)
}

// fastMisses sends requests to all sandboxes in turn, with a route cache for an eighth of
// them: every route has been evicted before the next request for its sandbox.
func (w *fastWorld) fastMisses(ctx context.Context) error {
	count := min(missFleet, w.Fleets[len(w.Fleets)-1])
	hosts, err := w.cluster.Fleet(ctx, count)
	if err != nil {
		return err
	}
	if err := w.startAll(ctx, 1, count, "--cache-size", fmt.Sprint(count/8)); err != nil {
		return err
	}
	return w.withAndWithout(ctx, "misses", load.Target{Hosts: hosts, Connections: connections})
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

// withAndWithout compares Sandlane with the module and without it, where ExtProc
// answers in both.
func (w *fastWorld) withAndWithout(ctx context.Context, name string, t load.Target) error {
	sides := []*side{w.ours, w.fast}
	for _, s := range sides {
		if err := suite.Await(ctx, func(ctx context.Context) error { return w.knowAll(ctx, s, t) }); err != nil { // it may be new
			return err
		}
		if _, err := w.closed(ctx, s, t, w.fastTime()); err != nil {
			return err
		}
	}
	return w.counted(ctx, name, 0, 10, func(ctx context.Context) error {
		rounds, err := w.turns(ctx, name, w.pairs(), sides, func(ctx context.Context, s *side) (measured, error) {
			return w.closed(ctx, s, t, w.fastTime())
		})
		if err != nil {
			return err
		}
		for i, fast := range rounds[1] {
			w.Add("fastpath/"+name+"/ratio/cpu-vs-without", "ratio", "less", fast.spent()/rounds[0][i].spent())
		}
		w.Progress("%s: %.3f of the CPU without the module", name, w.Row("fastpath/"+name+"/ratio/cpu-vs-without").Summary().Median)
		return nil
	})
}

// fastFleet sends requests to the largest fleet in turn, beside an Envoy that finds the same
// addresses without asking a server.
func (w *fastWorld) fastFleet(ctx context.Context) error {
	hosts, err := w.largest(ctx)
	if err != nil {
		return err
	}
	w.stopSides() // with their connections there would be too many
	if err := w.startFast(ctx, 1); err != nil {
		return err
	}
	dir, err := w.Folder("by-host")
	if err != nil {
		return err
	}
	direct := &side{name: "by-host"}
	if direct.envoy, direct.address, err = startEnvoy(ctx, w.Env, "envoy-by-host", envoy.Options{RunDir: dir}, 1, byHost); err != nil {
		return err
	}
	defer direct.stop()
	addresses := make([]string, len(hosts))
	for i := range addresses {
		addresses[i] = fmt.Sprintf("%s:%d", suite.Address(uint32(i)), w.upstreams.plain.port)
	}
	targets := map[*side]load.Target{
		direct: {Hosts: addresses, Connections: connections}, w.fast: {Hosts: hosts, Connections: connections},
	}
	sides := []*side{direct, w.fast}
	for _, s := range sides {
		if err := w.knowAll(ctx, s, targets[s]); err != nil {
			return err
		}
		if _, err := w.closed(ctx, s, targets[s], w.fastTime()); err != nil {
			return err
		}
	}
	name := fmt.Sprintf("fleet-%d", len(hosts))
	return w.counted(ctx, name, 95, 100, func(ctx context.Context) error { // the table has no room for some routes
		rounds, err := w.turns(ctx, name, w.Judged, sides, func(ctx context.Context, s *side) (measured, error) {
			return w.closed(ctx, s, targets[s], w.fastTime())
		})
		if err != nil {
			return err
		}
		for i, fast := range rounds[1] {
			w.Add("fastpath/"+name+"/ratio/vs-by-host", "ratio", "more", fast.PerSecond()/rounds[0][i].PerSecond())
			w.Add("fastpath/"+name+"/ratio/cpu-vs-by-host", "ratio", "less", fast.spent()/rounds[0][i].spent())
		}
		w.Progress("%s: %.0f/s, by host %.0f/s", name, rounds[1][0].PerSecond(), rounds[0][0].PerSecond())
		return nil
	})
}
