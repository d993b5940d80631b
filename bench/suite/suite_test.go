package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

// The side that is second in one round is first in the next.
func TestInTurns(t *testing.T) {
	var order strings.Builder
	side := func(name string) func(context.Context, int) error {
		return func(_ context.Context, round int) error {
			fmt.Fprintf(&order, "%s%d ", name, round)
			return nil
		}
	}
	if err := InTurns(t.Context(), 3, side("a"), side("b")); err != nil {
		t.Fatal(err)
	}
	if got := order.String(); got != "a0 b0 b1 a1 a2 b2 " {
		t.Errorf("order %s", got)
	}
	broken := errors.New("broken")
	if err := InTurns(t.Context(), 3, side("a"), func(context.Context, int) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

func TestEach(t *testing.T) {
	var mu sync.Mutex
	seen := map[int]int{}
	err := Each(t.Context(), 100, func(_ context.Context, i int) error {
		mu.Lock()
		defer mu.Unlock()
		seen[i]++
		return nil
	})
	if err != nil || len(seen) != 100 || seen[0] != 1 || seen[99] != 1 {
		t.Errorf("%v, %d seen", err, len(seen))
	}
	broken := errors.New("broken")
	if err := Each(t.Context(), 100, func(_ context.Context, i int) error {
		if i == 50 {
			return broken
		}
		return nil
	}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// A plan that would leave a row without a sample is refused.
func TestPlan(t *testing.T) {
	for _, p := range []Plan{All(), Quick()} {
		if err := p.Check(); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		for name, change := range map[string]func(*Plan){
			"pairs": func(p *Plan) { p.Pairs = 0 }, "judged": func(p *Plan) { p.Judged = 0 }, "rounds": func(p *Plan) { p.Rounds = 0 },
			"pair time": func(p *Plan) { p.PairTime = 0 }, "round time": func(p *Plan) { p.RoundTime = -1 }, "fleets": func(p *Plan) { p.Fleets = nil },
			"objects": func(p *Plan) { p.Objects = 0 },
		} {
			changed := p
			change(&changed)
			if changed.Check() == nil {
				t.Errorf("a plan without %s is taken", name)
			}
		}
	}
}

// A process's clock counts what its threads do, in less than hundredths of a second.
func TestCPU(t *testing.T) {
	const spin = 3 * time.Millisecond
	clock := func() time.Duration {
		used, err := cpu(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return used
	}
	var steps []time.Duration
	for range 5 {
		before, own := clock(), OwnCPU()
		for OwnCPU()-own < spin {
		}
		steps = append(steps, clock()-before)
	}
	// The kernel updates what getrusage returns a little later.
	if got := slices.Min(steps); got < spin/2 {
		t.Errorf("the clock went on by %v in %v of work", got, spin)
	}
	if got := slices.Min(steps); got >= 10*time.Millisecond {
		t.Errorf("each %v of work is %v or more", spin, got)
	}
	if used, err := cpu(1 << 22); err == nil { // above all numbers of processes
		t.Errorf("a process that there is not used %v", used)
	}
}

// The time that the hypervisor gave to others is a share of all time.
func TestStolen(t *testing.T) {
	from := procfs.CPUStat{User: 10, System: 5, Idle: 20, Steal: 5}
	to := procfs.CPUStat{User: 60, System: 15, Idle: 40, Steal: 25}
	if got := stolen(from, to); got != 0.2 {
		t.Errorf("%v of the time was stolen, want 20 of 100 s", got)
	}
	if got := stolen(from, from); got != 0 {
		t.Errorf("%v was stolen in no time", got)
	}
	if times := machineTimes(); times.User <= 0 {
		t.Errorf("the machine has used no time: %+v", times)
	}
}

// The floor computes the same addresses.
func TestAddress(t *testing.T) {
	for i, want := range map[uint32]string{0: "127.1.0.0", 255: "127.1.0.255", 65_536: "127.2.0.0", largestFleet: "127.17.0.0"} {
		if got := Address(i); got != netip.MustParseAddr(want) {
			t.Errorf("address %d is %s, want %s", i, got, want)
		}
	}
}

func TestProcess(t *testing.T) {
	e, err := NewEnv(Quick(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ready := func(context.Context) error { return nil }
	p, err := e.Start(t.Context(), "asked", nil, ready, "/bin/sh", "-c", "while read line; do echo 42; done")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	if n, err := p.Ask(); err != nil || n != 42 {
		t.Errorf("%v, %v", n, err)
	}
	if m, err := p.Memory(); err != nil || m < 100<<10 {
		t.Errorf("%v bytes, %v", m, err)
	}
	if _, err := p.CPU(); err != nil {
		t.Error(err)
	}
	never := func(context.Context) error { return errors.New("not yet") }
	_, err = e.Start(t.Context(), "broken", nil, never, "/bin/sh", "-c", "echo out of order >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "out of order") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a process that ended: %v", err)
	}
}
