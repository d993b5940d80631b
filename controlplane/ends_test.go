package controlplane

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandlane/sandlane/kubeclient/backoff"
)

// endsEvery is the time between two ends of a fleet in which 500 sandboxes end a second.
const endsEvery = time.Second / 500

// end is one sandbox's end, as the reconciler asks for its fence.
type end struct {
	rv    uint64
	begun time.Time
	first time.Duration // of the first attempt
	owing []string      // the gateways that it was not acknowledged by
	all   time.Duration // until all had acknowledged
}

// ends lets n sandboxes end, each with an address of its own, and returns when the
// fences of all are acknowledged: each is asked for again every few seconds, as long as
// limit lasts.
func (s *simulation) ends(n int, limit time.Duration) []*end {
	s.t.Helper()
	out := make([]*end, n)
	var asking sync.WaitGroup
	for i := range out {
		e := &end{rv: uint64(i + 1), begun: time.Now()}
		out[i] = e
		addr := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		asking.Go(func() {
			for {
				err := s.client.Fence(s.t.Context(), addr, e.rv)
				if e.first == 0 {
					e.first = time.Since(e.begun)
					var u *UnansweredError
					if errors.As(err, &u) {
						e.owing = u.Gateways
					}
				}
				if e.all = time.Since(e.begun); err == nil || e.all > limit {
					return
				}
				backoff.Sleep(s.t.Context(), 4*time.Second)
			}
		})
		backoff.Sleep(s.t.Context(), endsEvery)
	}
	asking.Wait()
	return out
}

// reached is the longest time from an end until a gateway was told of it.
func (g *gateway) reached(t *testing.T, ends []*end) (longest time.Duration) {
	t.Helper()
	g.fences.mu.Lock()
	defer g.fences.mu.Unlock()
	told := map[uint64]time.Time{}
	for i, call := range g.fences.calls {
		for _, f := range call {
			if _, known := told[f.RV]; !known {
				told[f.RV] = g.fences.times[i]
			}
		}
	}
	for _, e := range ends {
		at, ok := told[e.rv]
		if !ok {
			t.Fatalf("%s was never told of end %d", g.o.Name, e.rv)
		}
		longest = max(longest, at.Sub(e.begun))
	}
	return longest
}

// Five hundred sandboxes end a second, and one of three gateways takes 400 ms for each
// call: an end's fence takes that call and the rest of the one before, at any rate.
func TestEndsBesideASlowGateway(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		const slowest = 400 * time.Millisecond
		gs := []*gateway{s.run("g1", "a"), s.run("g2", "b"), s.run("g3", "c")}
		gs[2].fences.takes = slowest
		ends := s.ends(1000, time.Minute)
		var longest time.Duration
		for _, e := range ends {
			longest = max(longest, e.all)
		}
		if longest > 2*slowest+50*time.Millisecond {
			t.Errorf("the fence of an end took %v, want two calls of the slow gateway at most", longest)
		}
		for _, g := range gs {
			g.wantHeld(t, true, g.o.Name+" afterwards")
			if late := g.reached(t, ends); late > slowest+50*time.Millisecond {
				t.Errorf("%s was told of an end after %v, want %v at most", g.o.Name, late, slowest)
			}
		}
		if n := s.revoked(""); n != 0 {
			t.Errorf("%d leases were revoked", n)
		}
	})
}

// The controller cannot reach one of three gateways, while five hundred sandboxes end a
// second. The others are told of each end as soon as before but for one call's time,
// keep their leases, and so answer their requests; no attempt takes longer than two
// calls; and no fence is settled without the gateway that is cut off: it has dropped its
// routes before.
func TestEndsBesideAGatewayThatIsCutOff(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		gs := []*gateway{s.run("g1", "a"), s.run("g2", "b"), s.listen("g3", "c")}
		var dropped atomic.Int64 // when g3 first dropped its routes
		gs[2].o.OnLost = func(context.Context) error {
			dropped.CompareAndSwap(0, time.Now().UnixNano())
			return nil
		}
		gs[2].start(t)
		gs[2].wantHeld(t, true, "g3 starting")
		cut := time.Now()
		s.cutOff("g3", true)
		watching, stop := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(watching)
			for tick := time.NewTicker(50 * time.Millisecond); ; {
				select {
				case <-tick.C:
				case <-stop:
					return
				}
				if !gs[0].Held() || !gs[1].Held() {
					t.Error("a gateway that the controller reaches may not route")
					return
				}
			}
		}()
		ends := s.ends(1500, 5*time.Minute)
		close(stop)
		<-watching
		lost := time.Unix(0, dropped.Load())
		if lost.Before(cut) {
			t.Fatal("the gateway that is cut off never lost its lease")
		}
		const call = DefaultCallTimeout + 50*time.Millisecond
		for _, e := range ends {
			if e.first > 2*call {
				t.Fatalf("an attempt took %v, want two calls at most", e.first)
			}
			if slices.ContainsFunc(e.owing, func(name string) bool { return name != "g3" }) {
				t.Fatalf("%s do not acknowledge, want g3 alone", strings.Join(e.owing, " "))
			}
			if done := e.begun.Add(e.all); done.Before(lost) {
				t.Fatalf("a fence was settled %v after g3 was cut off, which dropped its routes after %v", done.Sub(cut), lost.Sub(cut))
			}
			if e.all > 2*time.Minute {
				t.Errorf("the fence of an end took %v", e.all)
				break
			}
		}
		for _, g := range gs[:2] {
			if late := g.reached(t, ends); late > call {
				t.Errorf("%s was told of an end after %v, want one call's time at most", g.o.Name, late)
			}
		}
		if n := s.revoked("g1") + s.revoked("g2"); n != 0 {
			t.Errorf("%d leases of gateways that acknowledge were revoked", n)
		}
	})
}

// A gateway that takes 1.1 s or 2.5 s for each call is late, not silent: it is never revoked,
// and no fence waits longer than for it and the caller's next try.
func TestEndsBesideALateGateway(t *testing.T) {
	for _, takes := range []time.Duration{1100 * time.Millisecond, 2500 * time.Millisecond} {
		simulate(t, func(t *testing.T, s *simulation) {
			gs := s.fleet(3)
			gs[2].fences.takes = takes
			got := s.endsFor(10*time.Minute, gs)
			if n := s.revoked(""); n != 0 || got.least != len(gs) {
				t.Errorf("beside a gateway that takes %v %d leases were revoked in ten minutes, and %d gateways served at the worst moment", takes, n, got.least)
			}
			if took := s.fenceUntilDone(1, time.Minute); took > 4*time.Second {
				t.Errorf("beside a gateway that takes %v a fence took %v", takes, took)
			}
			after(5 * time.Second) // calls that are on their way
		})
	}
}
