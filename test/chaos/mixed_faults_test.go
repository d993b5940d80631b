package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/test/stack"
)

// The faults of the mixed runs. A long fault outlasts the lease and the controller's grace,
// so that the gateway's addresses serve other sandboxes meanwhile.
const (
	pastLease     = " past its lease"
	killed        = "gateway killed"
	stopped       = "gateway stopped"
	stoppedLong   = "gateway stopped" + pastLease
	cutAPI        = "gateway cut off from the API server"
	cutAPILong    = "gateway cut off from the API server" + pastLease
	cutController = "gateway cut off from the controller"
	cutBoth       = "gateway cut off from both"
	cutBothLong   = "gateway cut off from both" + pastLease
	cutKilled     = "gateway cut off from both and killed"
	toldC         = "controller told to stop"
	killedC       = "controller killed"
	killedAPI     = "API server killed"
	stalledC      = "controller stopped for a second"
)

// A stalling controller is stopped for a second of every ten.
const (
	stall      = time.Second
	stallEvery = 9 * time.Second
)

// A lane does its faults one after the other, at the same time as the other lanes. So up to
// two of three gateways are harmed at a time, and the controller or the API server too.
var lanes = [][]string{
	{killed, stopped, cutAPI, cutController, cutBoth},
	{stoppedLong, cutBothLong},
	{killedC, killedAPI, toldC},
}

// shortLanes are the lanes of the run of half a minute.
var shortLanes = [][]string{{killed, stopped}, {cutBoth}, {killedAPI, killedC}}

// longLanes have more faults than fit in a minute.
var longLanes = [][]string{
	{killed, stopped, cutAPI, cutController, cutBoth, cutKilled},
	{stoppedLong, cutBothLong, cutAPILong, cutKilled, killed},
	{killedC, killedAPI, toldC},
}

// envoyWaits is how long an Envoy waits for its gateway.
const envoyWaits = 2 * time.Second

// recoveryLimit is how long a harmed process may take to serve again, on a busy machine and
// while other processes are harmed. The other tests have tighter bounds.
const recoveryLimit = time.Minute

// faults does the faults of one mixed run.
type faults struct {
	m *mixture

	mu      sync.Mutex
	busy    map[string]bool          // gateways that are being harmed
	done    map[string]int           // by kind
	met     map[string]int           // refusals of the harmed gateway, by kind
	slowest map[string]time.Duration // recovery, by kind
	away    []absence                // of gateways that may have lost their lease
}

// absence is a time in which the controller may have revoked a gateway's lease.
type absence struct {
	gateway  string
	from, to time.Time
}

func newFaults(m *mixture) *faults {
	return &faults{m: m, busy: map[string]bool{}, done: map[string]int{}, met: map[string]int{}, slowest: map[string]time.Duration{}}
}

// lane does the faults of a deck in a random order, over and over: once at least, and until
// ctx ends.
func (f *faults) lane(ctx context.Context, rng *rand.Rand, deck []string) error {
	for n := 0; n < len(deck) || ctx.Err() == nil; n++ {
		if n%len(deck) == 0 {
			rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		// Drawn before any wait, so that the schedule depends only on the seed.
		kind, gateway := deck[n%len(deck)], rng.IntN(len(shared.Up.Gateways))
		calm, last := between(rng, 500*time.Millisecond, 4*time.Second), between(rng, time.Second, 5*time.Second)
		switch {
		case kind == stalledC:
			calm = stallEvery
		case !strings.HasPrefix(kind, "gateway "):
			calm *= 3 // or the API server is away half of the time
		case strings.HasSuffix(kind, pastLease):
			calm *= 3 // nothing is released for idleness meanwhile
			last = lease + lease/2 + between(rng, time.Second, 8*time.Second)
		case kind == stopped:
			last += envoyWaits
		}
		if err := wait(f.m.ctx, calm); err != nil {
			return err
		}
		if n >= len(deck) && ctx.Err() != nil {
			return nil
		}
		if err := f.harm(kind, gateway, last); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

// harm does one fault and waits until all serve again.
func (f *faults) harm(kind string, gateway int, last time.Duration) error {
	ctx, cancel := context.WithTimeout(f.m.ctx, last+2*recoveryLimit)
	defer cancel()
	var healed time.Time
	var err error
	began := time.Now()
	if strings.HasPrefix(kind, "gateway ") {
		g := f.take(gateway)
		defer f.leave(g)
		before := f.m.load.refused(g)
		if err = f.harmGateway(ctx, kind, g, last); err == nil {
			healed = time.Now()
			err = f.m.serves(ctx, g)
		}
		f.mu.Lock()
		f.met[kind] += f.m.load.refused(g) - before
		if strings.HasSuffix(kind, pastLease) {
			f.away = append(f.away, absence{g.Name, began, time.Now()})
		}
		f.mu.Unlock()
		f.m.note("%s, and again served, %s: %s", f.m.span(began, healed), g.Name, kind)
	} else {
		healed = began
		err = f.harmControlPlane(ctx, kind)
		f.m.note("%s %s", f.m.span(began, time.Now()), kind)
	}
	if err != nil {
		return err
	}
	took := time.Since(healed)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done[kind]++
	f.slowest[kind] = max(f.slowest[kind], took)
	if took > recoveryLimit {
		return fmt.Errorf("recovered only after %v", took)
	}
	return nil
}

// harmGateway returns when the fault is over.
func (f *faults) harmGateway(ctx context.Context, kind string, g stack.Gateway, last time.Duration) (err error) {
	pid, err := nextPID(ctx, shared, g.Name, "gateway", 0)
	if err != nil {
		return err
	}
	switch kind {
	case killed:
		return f.kill(ctx, g.Name, "gateway", pid, syscall.SIGKILL)
	case stopped, stoppedLong:
		if err := signalOurs(pid, "gateway", syscall.SIGSTOP); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, signalOurs(pid, "gateway", syscall.SIGCONT)) }()
		return wait(ctx, last)
	}
	points := map[string]string{}
	if kind != cutController {
		points["gateway/requests"], points["gateway/watch"] = "hold", "delay 1h"
	}
	if kind != cutAPI && kind != cutAPILong {
		points["controlplane/reached"] = "hold"
	}
	lift := func() (err error) {
		for point := range points {
			err = errors.Join(err, unset(g.Name, point))
		}
		return err
	}
	defer func() { err = errors.Join(err, lift()) }()
	for point, what := range points {
		if err := set(g.Name, point, what); err != nil {
			return err
		}
	}
	if kind != cutKilled {
		return wait(ctx, last)
	}
	if err := wait(ctx, last/2); err != nil {
		return err
	}
	if err := signalOurs(pid, "gateway", syscall.SIGKILL); err != nil {
		return err
	}
	if err := wait(ctx, last/2); err != nil {
		return err
	}
	// The next process is in up.json once it is ready, which it is not while it is cut off.
	if err := lift(); err != nil {
		return err
	}
	_, err = nextPID(ctx, shared, g.Name, "gateway", pid)
	return err
}

// harmControlPlane harms the controller or the API server. It returns when a new process
// answers in its place, or when the stopped controller is continued.
func (f *faults) harmControlPlane(ctx context.Context, kind string) error {
	name, command, s := "controller", "controller", syscall.SIGKILL
	switch kind {
	case toldC:
		s = syscall.SIGTERM
	case killedAPI:
		name, command = "kube-apiserver", ""
	}
	pid, err := nextPID(ctx, shared, name, command, 0)
	if err != nil {
		return err
	}
	if kind == stalledC {
		if err := signalOurs(pid, command, syscall.SIGSTOP); err != nil {
			return err
		}
		err := wait(ctx, stall)
		return errors.Join(err, signalOurs(pid, command, syscall.SIGCONT))
	}
	if err := f.kill(ctx, name, command, pid, s); err != nil {
		return err
	}
	return until(ctx, "the API server", func() error { return shared.Client.List(ctx, &corev1.NamespaceList{}) })
}

// kill signals a process and waits until another one runs in its place.
func (f *faults) kill(ctx context.Context, name, command string, pid int, s syscall.Signal) error {
	if err := signalOurs(pid, command, s); err != nil {
		return err
	}
	_, err := nextPID(ctx, shared, name, command, pid)
	return err
}

// take returns the gateway, or the next one that no other lane is harming.
func (f *faults) take(i int) stack.Gateway {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := shared.Up.Gateways
	for f.busy[all[i%len(all)].Name] { // fewer lanes harm gateways than there are
		i++
	}
	g := all[i%len(all)]
	f.busy[g.Name] = true
	return g
}

func (f *faults) leave(g stack.Gateway) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.busy, g.Name)
}

// between draws a duration.
func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)))
}

// wait waits for a time, or fails when ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// until tries until it succeeds.
func until(ctx context.Context, what string, try func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s: %w (%w)", what, err, ctx.Err())
		case <-tick.C:
		}
	}
}
