package controlplane

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandlane/sandlane/routecache"
)

func TestFenceAsksEveryGateway(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		s.wantUnanswered(s.fence(1), "", "without gateways")
		gs := []*gateway{s.run("g1", "a"), s.run("g2", "b"), s.run("g3", "c")}
		s.wantUnanswered(s.fence(7), "", "with three")
		for _, g := range gs {
			if want := [][]routecache.Fence{{{Addr: addr1, RV: 7}}}; g.fences.asked() != 1 || !slices.Equal(g.fences.calls[0], want[0]) {
				t.Errorf("%s was asked %v", g.o.Name, g.fences.calls)
			}
		}
		s.api.setAway(true)
		if err := s.fence(8); err == nil {
			t.Error("fenced without knowing the gateways")
		}
	})
}

func TestFenceIsBatchedWhileARoundIsUnderWay(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		g := s.run("g1", "a")
		var lists atomic.Int32
		proceed := make(chan struct{})
		s.api.setAfter(func(verb, _ string) error {
			if verb == "list" && lists.Add(1) == 1 {
				<-proceed
			}
			return nil
		})
		const n = 200
		errs := make(chan error, n)
		for i := range n {
			go func() { errs <- s.client.Fence(t.Context(), netip.AddrFrom4([4]byte{198, 18, 1, byte(i)}), 5) }()
			if i == 0 {
				after(time.Millisecond) // its round is under way, with this fence alone
			}
		}
		after(time.Millisecond)
		close(proceed)
		for range n {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		total := 0
		for _, c := range g.fences.calls {
			total += len(c)
		}
		if g.fences.asked() != 2 || lists.Load() != 2 || total != n {
			t.Errorf("%d calls, %d lists, %d fences; want 2, 2, %d", g.fences.asked(), lists.Load(), total, n)
		}
	})
}

func TestFenceWaitsForASilentGatewayUntilItsLeaseEnds(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		a, b := s.run("g1", "a"), s.run("g2", "b")
		after(time.Minute)
		b.kill()
		died := time.Now()
		begin := time.Now()
		s.wantUnanswered(s.fence(7), "g2", "first try")
		if took := time.Since(begin); took > 1100*time.Millisecond {
			t.Errorf("the first try took %v", took)
		}
		s.fenceUntilDone(7, 12*time.Minute)
		if took := time.Since(died); took < 10*time.Minute+20*time.Second || took > 10*time.Minute+35*time.Second {
			t.Errorf("fenced %v after the gateway died, want lease and 30 s after its last renewal", took)
		}
		if n := a.fences.asked(); n != 1 {
			t.Errorf("the other gateway was asked %d times", n)
		}
		s.poll(30 * time.Second) // its loss is remembered elsewhere
		if s.api.get("g2") != nil {
			t.Error("the dead gateway's lease is still there")
		}
		s.wantUnanswered(s.fence(8), "", "afterwards")
	})
}

func TestFenceSettledByANewProcess(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		s.run("g1", "a").kill()
		s.wantUnanswered(s.fence(7), "g1", "dead")
		next := s.listen("g1", "b") // listens, and has not written the lease yet
		s.wantUnanswered(s.fence(7), "g1", "an answer of another process")
		if next.fences.asked() == 0 {
			t.Fatal("the new process was not asked")
		}
		synctest.Wait() // the call of the first try has come too, late
		asked := next.fences.asked()
		next.start(t)
		after(time.Second)
		s.wantUnanswered(s.fence(7), "", "taken over")
		if next.fences.asked() != asked {
			t.Error("the new process was asked again for what its lease settled")
		}
		s.wantUnanswered(s.fence(8), "", "a fence of after the takeover")
		if next.fences.asked() != asked+1 {
			t.Error("the new process was not asked for a fence made after it took over")
		}
	})
}

func TestFenceSettledByARejoin(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		s.run("g0", "b")
		g := s.run("g1", "a")
		after(time.Minute)
		s.cutOff("g1", true) // the controller cannot reach it, the API server can
		s.missUntilRevoked("g1", "cut off")
		if h := holderOf(s.api.get("g1")); h != "revoked:a/1" {
			t.Errorf("holder is %s", h)
		}
		g.wantHeld(t, true, "until its next renewal")
		if took := s.fenceUntilDone(7, time.Minute); took > 14*time.Second {
			t.Errorf("settled after %v, want by the next renewal", took)
		}
		if g.Holder() != "a/2" || !slices.Contains(g.log.all(), "lost") || g.fences.asked() != 0 {
			t.Errorf("holder %s, events %v, asked %d times", g.Holder(), g.log.all(), g.fences.asked())
		}
		s.cutOff("g1", false)
		s.wantUnanswered(s.fence(99), "", "reachable again")
		g.wantHeld(t, true, "reached")
	})
}

// missUntilRevoked asks for a fence of addr1 at 7 as often as a gateway must miss it.
func (s *simulation) missUntilRevoked(name, when string) {
	s.t.Helper()
	for range revokeAfterMisses {
		if n := s.revoked(name); n != 0 {
			s.t.Fatalf("%s: revoked too early", when)
		}
		s.wantUnanswered(s.fence(7), name, when)
		after(time.Millisecond)
	}
	if n := s.revoked(name); n != 1 {
		s.t.Fatalf("%s: revoked %d times", when, n)
	}
}

func TestFenceRevokesAGatewayThatHangs(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		s.run("g0", "b")
		g := s.run("g1", "a")
		renewed := s.api.get("g1").Spec.RenewTime.Time
		g.fences.setHang(true)
		s.missUntilRevoked("g1", "a handler in flight does not answer")
		l := s.api.get("g1")
		if holderOf(l) != "revoked:a/1" || !l.Spec.RenewTime.Time.Equal(renewed) {
			t.Errorf("lease says %s, renewed %v, was %v", holderOf(l), l.Spec.RenewTime, renewed)
		}
		g.fences.setHang(false)
		s.wantUnanswered(s.fence(7), "", "the same process acknowledges under its revoked holder")
		if g.Holder() != "a/1" {
			t.Fatalf("rejoined too early: %s", g.Holder())
		}
		after(11 * time.Second)
		g.wantHeld(t, true, "rejoined")
		if g.Holder() != "a/2" {
			t.Errorf("holder %s", g.Holder())
		}
	})
}

// A round that takes longer than its callers wait is not lost: the next call
// finds what it settled.
func TestFenceSlowRoundsAreRemembered(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		g := s.run("g1", "a")
		s.api.setAfter(func(verb, _ string) error {
			if verb == "list" {
				after(1200 * time.Millisecond)
			}
			return nil
		})
		ask := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return s.client.Fence(ctx, addr1, 7)
		}
		if err := ask(); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the first call: %v", err)
		}
		after(time.Second)
		if err := ask(); err != nil {
			t.Errorf("the second call: %v", err)
		}
		if g.fences.asked() != 1 {
			t.Errorf("the gateway was asked %d times", g.fences.asked())
		}
	})
}

// What is settled is forgotten soon, what is still owed is not: to ask for it anew
// would let it be owed by gateways that joined since.
func TestFenceIsForgotten(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		remembers := func(what string, rv uint64, want bool) {
			t.Helper()
			s.client.mu.Lock()
			defer s.client.mu.Unlock()
			if _, got := s.client.pending[fenceKey{addr1, rv}]; got != want {
				t.Errorf("%s: remembered %v", what, got)
			}
		}
		g := s.run("g1", "a")
		s.wantUnanswered(s.fence(7), "", "the first")
		after(forgetSettled / 2)
		s.wantUnanswered(s.fence(7), "", "again")
		if g.fences.asked() != 1 {
			t.Errorf("the gateway was asked %d times for one fence", g.fences.asked())
		}
		g.kill()
		s.wantUnanswered(s.fence(8), "g1", "one that stays owed")
		after(forgetSettled / 2)
		s.wantUnanswered(s.fence(9), "g1", "another")
		remembers("settled, and asked for lately", 7, true)
		after(forgetSettled)
		s.wantUnanswered(s.fence(9), "g1", "another, again")
		remembers("settled a while ago", 7, false)
		remembers("owed", 8, true)
		s.wantUnanswered(s.fence(8), "g1", "the one that stays owed")
	})
}

func TestFenceOwesOnlyWhatWasListedFirst(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		s.run("g1", "a").kill()
		s.wantUnanswered(s.fence(7), "g1", "first")
		later := s.run("g2", "b")
		s.wantUnanswered(s.fence(7), "g1", "second")
		if later.fences.asked() != 0 {
			t.Error("a gateway that joined after the fence was asked for it")
		}
		s.wantUnanswered(s.fence(8), "g1", "another fence")
		if later.fences.asked() != 1 {
			t.Error("a gateway that joined before the fence was not asked for it")
		}
	})
}

func TestFenceSettledByACleanStop(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		g := s.run("g1", "a")
		g.fences.setHang(true)
		s.wantUnanswered(s.fence(7), "g1", "hanging")
		if err := g.Leave(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		after(time.Millisecond) // the watch tells a clean stop from a vanished lease
		s.wantUnanswered(s.fence(7), "", "left")
		g.cancel = nil
	})
}

func TestFenceAfterALeaseVanished(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		g := s.run("g1", "a")
		g.kill()
		s.api.drop("g1")
		s.wantUnanswered(s.fence(7), "g1", "vanished and dead")
		if took := s.fenceUntilDone(7, 12*time.Minute); took < 10*time.Minute {
			t.Errorf("settled after %v", took)
		}
	})
}

func TestFenceReconnects(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		a := s.run("g1", "a")
		s.wantUnanswered(s.fence(1), "", "first")
		a.kill()
		after(5 * time.Minute) // long enough for a back-off to grow
		b := s.run("g1", "b")
		s.wantUnanswered(s.fence(2), "", "the first call after a restart")
		if b.fences.asked() != 1 {
			t.Errorf("asked %d times", b.fences.asked())
		}
	})
}

func TestClientCloseAndCancel(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		g := s.run("g1", "a")
		g.fences.setHang(true)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := s.client.Fence(ctx, addr1, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Fence returned %v", err)
		}
		s.client.Close()
		if err := s.fence(2); !errors.Is(err, ErrClosed) {
			t.Errorf("Fence after Close returned %v", err)
		}
	})
}
