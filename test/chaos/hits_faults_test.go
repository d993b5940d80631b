package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

// The faults of Envoys, in addition to those of the mixed runs. A stopped Envoy holds up the
// fences of the routes from which it may be about to answer, until it is continued.
const (
	envoyKilled  = "Envoy killed"
	envoyStopped = "Envoy stopped"
)

// harm does the faults of each lane one after the other, over and over, until enough returns
// true for the number of the kind that was done least often. It returns how often each kind
// was done.
func (r *hitRun) harm(lanes [][]string, enough func(faults int) bool) map[string]int {
	f := &hitFaults{run: r, busy: map[string]bool{}, done: map[string]int{}}
	for _, lane := range lanes {
		for _, kind := range lane {
			f.done[kind] = 0
		}
	}
	var all sync.WaitGroup
	for _, lane := range lanes {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(len(lane)), uint64(time.Now().UnixNano())))
			for n := 0; r.ctx.Err() == nil && !enough(f.fewest()); n++ {
				if wait(r.ctx, between(rng, 500*time.Millisecond, 2*time.Second)) != nil {
					return
				}
				kind := lane[n%len(lane)]
				if err := f.do(rng, kind); err != nil {
					r.t.Errorf("%s: %v", kind, err)
					return
				}
			}
		})
	}
	all.Wait()
	return f.done
}

// hitFaults does the faults of one run.
type hitFaults struct {
	run *hitRun

	mu   sync.Mutex
	busy map[string]bool // gateways that are being harmed, with their Envoys
	done map[string]int
}

func (f *hitFaults) fewest() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	least := -1
	for _, n := range f.done {
		if least < 0 || n < least {
			least = n
		}
	}
	return least
}

// do does one fault to a gateway, or its Envoy, that no other lane is harming, and returns
// when it serves again.
func (f *hitFaults) do(rng *rand.Rand, kind string) error {
	all := shared.Up.Gateways
	f.mu.Lock()
	i := rng.IntN(len(all))
	for f.busy[all[i].Name] { // there are more gateways than lanes
		i = (i + 1) % len(all)
	}
	g := all[i]
	f.busy[g.Name] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.busy, g.Name)
		f.done[kind]++
	}()
	last := between(rng, 500*time.Millisecond, 3*time.Second)
	if strings.HasSuffix(kind, pastLease) {
		last += lease + lease/2
	}
	ctx, cancel := context.WithTimeout(f.run.ctx, last+2*recoveryLimit)
	defer cancel()
	if !strings.HasPrefix(kind, "Envoy ") {
		gateways := faults{}
		return gateways.harmGateway(ctx, kind, g, last)
	}
	pid, err := envoyPID(ctx, g.Name, 0)
	if err != nil {
		return err
	}
	if kind == envoyKilled {
		if err := signalOurs(pid, "", syscall.SIGKILL); err != nil {
			return err
		}
		_, err := envoyPID(ctx, g.Name, pid)
		return err
	}
	if err := signalOurs(pid, "", syscall.SIGSTOP); err != nil {
		return err
	}
	err = wait(ctx, last)
	if again := signalOurs(pid, "", syscall.SIGCONT); err == nil {
		err = again
	}
	return err
}

// envoyPID waits until up.json names a running Envoy of the gateway that is not the
// former one.
func envoyPID(ctx context.Context, gateway string, former int) (pid int, err error) {
	now := &stack.Stack{State: shared.State}
	err = until(ctx, "the Envoy of "+gateway, func() error {
		if err := now.Reload(); err != nil {
			return err
		}
		for _, g := range now.Up.Gateways {
			if g.Name == gateway {
				pid = g.Pids["envoy"]
			}
		}
		if pid <= 1 || pid == former {
			return fmt.Errorf("up.json names %d", pid)
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
			return err
		}
		return nil
	})
	return pid, err
}

// restored waits until every gateway serves a new sandbox.
func (r *hitRun) restored() {
	r.t.Helper()
	for i, g := range shared.Up.Gateways {
		id := fmt.Sprintf("%s-restored-%d", r.ns, i)
		shared.Eventually(r.t, recoveryLimit, g.Name+" to serve again", func() (bool, string) {
			req, err := stack.Request{ID: id, Pool: r.ns + "/pool"}.Build(r.t.Context(), g.URL)
			if err != nil {
				return false, err.Error()
			}
			req.Close = true
			a, err := stack.Send(nil, req)
			if err != nil {
				return false, err.Error()
			}
			return a.Echo != nil, a.String()
		})
	}
}
