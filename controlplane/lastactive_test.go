package controlplane

import (
	"slices"
	"testing"
	"time"
)

func TestLastActiveMergesAges(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		a, b := s.run("g1", "a"), s.run("g2", "b")
		if !s.client.Floor().IsZero() {
			t.Error("a floor before anything was asked")
		}
		a.use.set(func(r *ActivityReport) {
			r.Cursor = 5
			r.Entries = []Activity{{"sbx", "c2", 4 * time.Minute}, {"sbx", "c1", time.Minute}, {"other", "c", 0}}
		})
		b.use.set(func(r *ActivityReport) {
			r.Cursor = 9
			r.Entries = []Activity{{"sbx", "c2", 3 * time.Minute}}
		})
		start := time.Now()
		got, err := s.client.GetLastActive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 || !got["sbx"].Equal(start.Add(-time.Minute)) || !got["other"].Equal(start) {
			t.Errorf("got %v", got)
		}
		if at, ok := s.client.LastActive("sbx", "c2"); !ok || !at.Equal(start.Add(-3*time.Minute)) {
			t.Errorf("c2 was last active %v, %v: another claim's use must not count", at, ok)
		}
		if _, ok := s.client.LastActive("sbx", "c3"); ok {
			t.Error("a claim that nobody reported is known")
		}
		if !s.client.Floor().Equal(start) {
			t.Errorf("floor %v, want the first poll", s.client.Floor())
		}

		after(time.Minute)
		a.use.set(func(r *ActivityReport) { r.Entries = nil })
		b.use.set(func(r *ActivityReport) { r.Entries = []Activity{{"sbx", "c2", 30 * time.Second}} })
		if _, err := s.client.GetLastActive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if at, _ := s.client.LastActive("sbx", "c2"); !at.Equal(start.Add(30 * time.Second)) {
			t.Errorf("c2 was last active %v after start", at.Sub(start))
		}
		if at, ok := s.client.LastActive("other", "c"); !ok || !at.Equal(start) {
			t.Error("forgot what is not reported again")
		}
		if !slices.Equal(a.use.cursors, []uint64{0, 5}) || !slices.Equal(b.use.cursors, []uint64{0, 9}) {
			t.Errorf("cursors asked for: %v %v", a.use.cursors, b.use.cursors)
		}
		s.client.Retain(func(id, claim string) bool { return id == "sbx" && claim == "c2" })
		if _, ok := s.client.LastActive("other", "c"); ok {
			t.Error("Retain kept a claim that is over")
		}
		if _, ok := s.client.LastActive("sbx", "c2"); !ok {
			t.Error("Retain forgot a claim")
		}
	})
}

func TestLastActiveUnknownCountsAsAnError(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		a, b := s.run("g1", "a"), s.run("g2", "b")
		a.use.set(func(r *ActivityReport) { r.Known = false })
		_, err := s.client.GetLastActive(t.Context())
		s.wantUnanswered(err, "g1", "a gateway that cannot read its Envoy")
		a.use.set(func(r *ActivityReport) { r.Known = true })
		_, err = s.client.GetLastActive(t.Context())
		s.wantUnanswered(err, "", "both know")
		b.kill()
		_, err = s.client.GetLastActive(t.Context())
		s.wantUnanswered(err, "g2", "a dead gateway with a lease")
		s.api.setAway(true)
		if _, err := s.client.GetLastActive(t.Context()); err == nil {
			t.Error("an answer without knowing the gateways")
		}
	})
}

func TestLastActiveAfterANewProcessTookOver(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		a := s.run("g1", "a")
		a.use.set(func(r *ActivityReport) { r.Cursor = 50 })
		if _, err := s.client.GetLastActive(t.Context()); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		floor := s.client.Floor()
		a.kill()
		b := s.listen("g1", "b")
		_, err := s.client.GetLastActive(t.Context())
		s.wantUnanswered(err, "g1", "another process than the lease names")
		if !s.client.Floor().Equal(floor) && s.client.Floor().Before(time.Now().Add(-time.Second)) {
			t.Errorf("floor %v", s.client.Floor())
		}
		after(time.Minute)
		b.start(t)
		took := time.Now()
		b.use.set(func(r *ActivityReport) { r.Cursor = 3; r.Entries = []Activity{{"x", "c", time.Second}} })
		if _, err := s.client.GetLastActive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.client.Floor().Before(took) {
			t.Errorf("floor %v before the takeover at %v", s.client.Floor(), took)
		}
		if c := b.use.cursors; c[len(c)-1] != 0 {
			t.Errorf("cursors %v: the new process must be asked for all", c)
		}
	})
}

func TestFloorRisesWhenAGatewayIsLost(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		clean, dead, rejoin := s.run("clean", "a"), s.run("dead", "b"), s.run("rejoin", "c")
		if _, err := s.client.GetLastActive(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := s.client.Floor()
		after(time.Minute)
		revoke(t, s.api, "rejoin")
		after(15 * time.Second)
		if rejoin.Holder() != "c/2" || !s.client.Floor().Equal(first) {
			t.Errorf("%s: floor moved by %v though the process lives", rejoin.Holder(), s.client.Floor().Sub(first))
		}
		left := time.Now()
		if err := clean.Leave(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		clean.cancel = nil
		if _, err := s.client.GetLastActive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.client.Floor().Before(left) {
			t.Error("floor did not rise with a clean stop")
		}
		after(time.Minute)
		dead.kill()
		s.api.drop("dead")
		_, err := s.client.GetLastActive(t.Context())
		s.wantUnanswered(err, "dead", "a lease that vanished")
		after(leaseAndGrace + 10*time.Second)
		if _, err := s.client.GetLastActive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.client.Floor().Before(left.Add(leaseAndGrace)) {
			t.Error("floor did not rise when a lost gateway was given up")
		}
	})
}

// Each poll tells a gateway its place among those that are asked.
func TestGatewaysAreToldTheirPlaces(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		a, c := s.run("g1", "a"), s.run("g3", "c")
		poll := func() {
			t.Helper()
			if _, err := s.client.GetLastActive(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		poll()
		if a.use.placed() != [2]int{0, 2} || c.use.placed() != [2]int{1, 2} {
			t.Errorf("places %v %v", a.use.placed(), c.use.placed())
		}
		b := s.run("g2", "b")
		poll()
		if b.use.placed() != [2]int{1, 3} || c.use.placed() != [2]int{2, 3} {
			t.Errorf("places after another joined: %v %v", b.use.placed(), c.use.placed())
		}
	})
}
