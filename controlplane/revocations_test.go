package controlplane

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/kubeclient/backoff"
)

// revoked counts the writes that overwrote the holder of a gateway's lease; of all
// for "".
func (s *simulation) revoked(name string) int {
	n := 0
	for _, w := range s.api.writes() {
		if strings.HasPrefix(w, "patch "+name) && strings.Contains(w, " "+string(MarkRevoked)+":") {
			n++
		}
	}
	return n
}

// fleet runs n gateways that take eight seconds to list, and waits for them.
func (s *simulation) fleet(n int) []*gateway {
	s.t.Helper()
	out := make([]*gateway, n)
	for i := range out {
		out[i] = s.listen(fmt.Sprintf("g%02d", i), fmt.Sprintf("p%02d", i))
		out[i].o.OnJoin = func(ctx context.Context) error {
			if !backoff.Sleep(ctx, 8*time.Second) {
				return ctx.Err()
			}
			return nil
		}
		out[i].start(s.t)
	}
	after(10 * time.Second)
	for _, g := range out {
		g.wantHeld(s.t, true, g.o.Name+" starting")
	}
	return out
}

// service is how a fleet served while sandboxes ended.
type service struct {
	least int     // how many gateways served at the worst moment
	share float64 // of looks at gateways that found one serving
}

// endsFor lets a sandbox end every 700 ms and looks at the gateways meanwhile.
func (s *simulation) endsFor(d time.Duration, gs []*gateway) service {
	s.t.Helper()
	out, held, looks := service{least: len(gs)}, 0, 0
	for begin := time.Now(); time.Since(begin) < d; looks++ {
		s.ended++
		rv := 1000 + s.ended
		go func() { _ = s.fence(rv) }()
		after(700 * time.Millisecond)
		serving := 0
		for _, g := range gs {
			if g.Held() {
				serving++
			}
		}
		held += serving
		out.least = min(out.least, serving)
	}
	after(3 * time.Second) // the last round
	out.share = float64(held) / float64(looks*len(gs))
	return out
}

// One slow second, of the controller or of its gateways, revokes nothing.
func TestOneSlowRoundRevokesNothing(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		gs := s.fleet(20)
		for _, g := range gs[1:] {
			g.fences.setHang(true)
		}
		s.wantUnanswered(s.fence(1), strings.Join(leaseNames(gs[1:]), " "), "a slow round")
		for _, g := range gs {
			g.fences.setHang(false)
		}
		got := s.endsFor(time.Minute, gs)
		if got.least != len(gs) || s.revoked("") != 0 {
			t.Errorf("after a slow round %d of %d gateways served, %d were revoked", got.least, len(gs), s.revoked(""))
		}
		s.wantUnanswered(s.fence(1), "", "the fence of the slow round")
	})
}

func leaseNames(gs []*gateway) (out []string) {
	for _, g := range gs {
		out = append(out, g.o.Name)
	}
	return out
}

// However many gateways do not acknowledge, a tenth of all is out at a time, each
// has its turn, and each serves most of the time.
func TestFewGatewaysAreRevokedAtATime(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		gs := s.fleet(20)
		for _, g := range gs[:10] {
			s.cutOff(g.o.Name, true)
		}
		first := make(chan time.Duration, 1)
		go func() {
			begin := time.Now()
			for s.fence(1) != nil {
				backoff.Sleep(t.Context(), 3*time.Second)
			}
			first <- time.Since(begin)
		}()
		got := s.endsFor(8*time.Minute, gs)
		if got.least < 18 {
			t.Errorf("at the worst moment %d of 20 gateways served", got.least)
		}
		if took := <-first; took > 6*time.Minute {
			t.Errorf("an address waited %v for ten gateways that are cut off", took)
		}
		for _, g := range gs[10:] {
			if n := s.revoked(g.o.Name); n != 0 {
				t.Errorf("%s acknowledges and was revoked %d times", g.o.Name, n)
			}
		}
	})
}

// A controller that reaches no gateway must not take the data plane down with it,
// however many sandboxes end meanwhile. What they leave is fenced later.
func TestGatewaysServeWhileTheControllerReachesNone(t *testing.T) {
	for _, n := range []int{1, 2} {
		simulate(t, func(t *testing.T, s *simulation) {
			gs := s.fleet(n)
			s.wantUnanswered(s.fence(1), "", "while all acknowledge")
			for _, g := range gs {
				s.cutOff(g.o.Name, true)
			}
			if got := s.endsFor(20*time.Minute, gs); got.least != n || s.revoked("") != 0 {
				t.Errorf("at the worst moment %d of %d gateways served, which were revoked %d times", got.least, n, s.revoked(""))
			}
			s.wantUnanswered(s.fence(2), strings.Join(leaseNames(gs), " "), "while none is reached")
			for _, g := range gs {
				s.cutOff(g.o.Name, false)
			}
			s.wantUnanswered(s.fence(2), "", "reachable again")
		})
	}
}

// A gateway whose own call is the only one that is made is silent among others that
// owe nothing: whether they can be reached is asked, not remembered.
func TestOthersThatAcknowledgedBeforeProveNothing(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		gs := s.fleet(3)
		s.cutOff("g00", true)
		s.wantUnanswered(s.fence(1), "g00", "one is cut off")
		for _, g := range gs {
			s.cutOff(g.o.Name, true)
		}
		for range 20 {
			s.wantUnanswered(s.fence(1), "g00", "all are cut off, and the others owe nothing")
			after(time.Second)
		}
		if s.revoked("") != 0 {
			t.Error("revoked by a controller that reaches no gateway")
		}
		s.cutOff("g01", false)
		if took := s.fenceUntilDone(1, time.Minute); took > 25*time.Second {
			t.Errorf("settled %v after another gateway was reached again", took)
		}
		if s.revoked("g00") != 1 {
			t.Errorf("revoked %d times", s.revoked("g00"))
		}
	})
}

// While others acknowledge, one that is cut off delays no address for long, and
// serves between two revocations.
func TestOneGatewayCutOffAmongOthers(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		gs := s.fleet(3)
		s.cutOff("g00", true)
		quiet := DefaultLeaseDuration / rejoinQuiet
		for rv := uint64(1); rv < 20; rv++ {
			if took := s.fenceUntilDone(rv, 10*time.Minute); took > quiet+DefaultRenewEvery+15*time.Second {
				t.Errorf("fence %d took %v", rv, took)
			}
		}
		if got := s.endsFor(20*time.Minute, gs[:1]); got.share < 0.7 {
			t.Errorf("it served for %.0f %% of the time", 100*got.share)
		}
		for _, g := range gs[1:] {
			g.wantHeld(t, true, "it acknowledges")
			if n := s.revoked(g.o.Name); n != 0 {
				t.Errorf("%s acknowledges and was revoked %d times", g.o.Name, n)
			}
		}
	})
}

// A revocation that fails may have been applied, and takes its place until the
// gateway has joined again or has acknowledged.
func TestARevocationThatFailsKeepsItsPlace(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		s.fleet(4)
		s.setMute(true)
		s.cutOff("g00", true)
		s.cutOff("g01", true)
		for range 20 {
			s.wantUnanswered(s.fence(1), "g00 g01", "not revoked")
			after(time.Second)
		}
		s.client.revocations.mu.Lock()
		out := 0
		for _, st := range s.client.revocations.standing {
			if st.revoked != (Holder{}) {
				out++
			}
		}
		s.client.revocations.mu.Unlock()
		if out != 1 {
			t.Errorf("%d gateways may have been revoked at a time, want 1", out)
		}
		s.setMute(false)
		s.fenceUntilDone(1, 3*time.Minute)
	})
}

// A gateway that answers polls, and no fence, is one that is slow: to have it list
// everything again and again makes it slower.
func TestAnsweredPollsAreNoAcknowledgement(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		gs := s.fleet(2)
		gs[0].fences.setHang(true)
		s.cutOff("g01", true)
		for rv := uint64(1); rv < 100; rv++ {
			_ = s.fence(rv)
			_, _ = s.client.GetLastActive(t.Context())
			after(2 * time.Second)
		}
		if n := s.revoked(""); n != 0 {
			t.Errorf("%d were revoked", n)
		}
	})
}

func TestRevocationsAreForgottenWithTheirGateway(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		s.run("g0", "b")
		s.run("g1", "a").kill()
		s.wantUnanswered(s.fence(1), "g1", "dead")
		if len(s.client.revocations.standing) != 1 {
			t.Fatalf("noted %v", s.client.revocations.standing)
		}
		after(leaseAndGrace + DefaultRefreshEvery)
		s.wantUnanswered(s.fence(2), "", "its lease is over")
		if len(s.client.revocations.standing) != 0 {
			t.Errorf("noted for ever: %v", s.client.revocations.standing)
		}
	})
}
