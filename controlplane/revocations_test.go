package controlplane

import (
	"strings"
	"testing"
	"time"
)

// revoked counts the writes that overwrote the holder of a gateway's lease.
func (s *simulation) revoked(name string) int {
	n := 0
	for _, w := range s.api.writes() {
		if strings.HasPrefix(w, "patch "+name+" "+string(MarkRevoked)+":") {
			n++
		}
	}
	return n
}

// A controller that reaches no gateway must not take the data plane down with it,
// however many sandboxes end meanwhile. What they leave is fenced later.
func TestGatewaysServeWhileTheControllerReachesNone(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		gs := []*gateway{s.run("g1", "a"), s.run("g2", "b")}
		for _, g := range gs {
			s.cutOff(g.o.Name, true)
		}
		held, looks := make([]int, len(gs)), 0
		for begin := time.Now(); time.Since(begin) < 2*time.Hour; looks++ {
			_ = s.fence(uint64(looks)) // another sandbox has ended
			for i, g := range gs {
				if g.Held() {
					held[i]++
				}
			}
			after(700 * time.Millisecond)
		}
		for i, g := range gs {
			if share := float64(held[i]) / float64(looks); share < 0.97 {
				t.Errorf("%s served for %.0f %% of the time", g.o.Name, 100*share)
			}
			// Waits of 10, 20, 40, 80, 160 and then 300 s.
			if n := s.revoked(g.o.Name); n < 20 || n > 30 {
				t.Errorf("%s was revoked %d times in two hours", g.o.Name, n)
			}
		}
	})
}

// A fence of a gateway that is not revoked stays open, and is settled with the
// next revocation; the first acknowledgement ends the waiting.
func TestRevocationsWaitLongerEachTime(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		s.run("g1", "a")
		s.cutOff("g1", true)
		rv := uint64(1)
		for _, want := range []time.Duration{0, 10, 20, 40, 80, 160, 300, 300} {
			// By the renewal after it, and the next attempt after that.
			want *= time.Second
			rv++
			if took := s.fenceUntilDone(rv, 10*time.Minute); took > want+20*time.Second || took < want-20*time.Second {
				t.Errorf("fence %d took %v, want about %v", rv, took, want)
			}
		}
		s.cutOff("g1", false)
		s.wantUnanswered(s.fence(100), "", "reachable again")
		s.cutOff("g1", true)
		before := s.revoked("g1")
		s.wantUnanswered(s.fence(101), "g1", "cut off again")
		if s.revoked("g1") != before+1 {
			t.Error("it was not revoked at once, though it had answered")
		}
	})
}

// While others acknowledge, one that is cut off delays nobody's address for long, and
// serves between two revocations.
func TestOneGatewayCutOffAmongOthers(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		away := s.run("g1", "a")
		near := []*gateway{s.run("g2", "b"), s.run("g3", "c")}
		s.cutOff("g1", true)
		rv := uint64(1)
		for range 20 { // a wait that doubles would be over five minutes by now
			if took := s.fenceUntilDone(rv, 10*time.Minute); took > othersRevokeWait+DefaultRenewEvery+10*time.Second {
				t.Errorf("fence %d took %v", rv, took)
			}
			rv++
		}
		held, looks := 0, 0
		for begin := time.Now(); time.Since(begin) < 2*time.Hour; looks++ {
			_ = s.fence(rv) // another sandbox has ended
			rv++
			if away.Held() {
				held++
			}
			after(700 * time.Millisecond)
		}
		if share := float64(held) / float64(looks); share < 0.7 {
			t.Errorf("%s served for %.0f %% of the time", away.o.Name, 100*share)
		}
		for _, g := range near {
			g.wantHeld(t, true, "it acknowledges")
			if n := s.revoked(g.o.Name); n != 0 {
				t.Errorf("%s acknowledges and was revoked %d times", g.o.Name, n)
			}
		}
		// Now the controller reaches nobody: its waits get longer from here on.
		for _, g := range near {
			s.cutOff(g.o.Name, true)
		}
		before := s.revoked("g1")
		for begin := time.Now(); time.Since(begin) < 2*time.Hour; rv++ {
			_ = s.fence(rv)
			after(700 * time.Millisecond)
		}
		if n := s.revoked("g1") - before; n < 20 || n > 30 {
			t.Errorf("revoked %d times in two hours in which the controller reached nobody", n)
		}
	})
}

// A gateway that answers polls, and no fence, is one that is slow: to have it list
// everything again and again makes it slower.
func TestPollsDoNotEndTheWaiting(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		g := s.run("g1", "a")
		g.fences.setHang(true)
		for rv := uint64(1); rv < 200; rv++ {
			_ = s.fence(rv)
			if _, err := s.client.GetLastActive(t.Context()); err != nil {
				t.Fatal(err)
			}
			after(2 * time.Second)
		}
		if n := s.revoked("g1"); n != 6 { // at 0, 10, 30, 70, 150 and 310 s of ten minutes
			t.Errorf("revoked %d times", n)
		}
	})
}

func TestRevocationsAreForgottenWithTheirGateway(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		s.run("g1", "a").kill()
		s.wantUnanswered(s.fence(1), "g1", "dead")
		if len(s.client.revocations.last) != 1 {
			t.Fatalf("noted %v", s.client.revocations.last)
		}
		after(leaseAndGrace + DefaultRefreshEvery)
		s.wantUnanswered(s.fence(2), "", "its lease is over")
		if len(s.client.revocations.last) != 0 {
			t.Errorf("noted for ever: %v", s.client.revocations.last)
		}
	})
}
