package controlplane

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var releases = []Release{{"a", "ca", "ta", time.Minute}, {"b", "cb", "tb", 4 * time.Second}}

func inUse(ids ...string) func(context.Context) ([]string, bool) {
	return func(context.Context) ([]string, bool) { return ids, true }
}

// Every gateway is asked once for the whole batch, and one that says "in use" is
// enough.
func TestPrepareReleaseAsksEveryGateway(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		one, two, three := s.run("g1", "a"), s.run("g2", "b"), s.run("g3", "c")
		two.releases.set(inUse("b"))
		got, err := s.client.PrepareRelease(t.Context(), releases)
		if err != nil || len(got) != 1 || !got["b"] {
			t.Errorf("in use: %v, %v", got, err)
		}
		for _, g := range []*gateway{one, two, three} {
			if len(g.releases.asked) != 1 || !slices.Equal(g.releases.asked[0], releases) {
				t.Errorf("gateway %s was asked %+v", g.o.Name, g.releases.asked)
			}
		}
	})
}

// A gateway that cannot tell, does not answer, answers late, is cut off, or is another
// process than the lease says makes the whole answer unknown, until its lease is over.
func TestPrepareReleaseUnanswered(t *testing.T) {
	for name, trouble := range map[string]func(*simulation, *gateway) (repair func()){
		"cannot read its Envoy": func(_ *simulation, g *gateway) func() {
			g.releases.set(func(context.Context) ([]string, bool) { return nil, false })
			return func() { g.releases.set(nil) }
		},
		"is paused": func(_ *simulation, g *gateway) func() {
			g.releases.set(func(ctx context.Context) ([]string, bool) {
				<-ctx.Done()
				<-time.After(time.Millisecond) // at the deadline itself either side may be first
				return nil, true
			})
			return func() { g.releases.set(nil) }
		},
		"is cut off": func(s *simulation, g *gateway) func() {
			s.cutOff("g2", true)
			return func() { s.cutOff("g2", false) }
		},
		"was killed, and started again": func(s *simulation, g *gateway) func() {
			g.kill()
			return func() { s.run("g2", "b2") }
		},
		"is another process at the same address": func(s *simulation, g *gateway) func() {
			g.kill()
			other := s.listen("g2", "b2") // its server is up, its lease is not written
			return func() { other.start(s.t); other.wantHeld(s.t, true, "started") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulation) {
				s.run("g1", "a")
				g := s.run("g2", "b")
				repair := trouble(s, g)
				start := time.Now()
				got, err := s.client.PrepareRelease(t.Context(), releases)
				s.wantUnanswered(err, "g2", name)
				if got != nil || time.Since(start) > prepareTimeout {
					t.Errorf("%v after %v", got, time.Since(start))
				}
				repair()
				after(time.Minute)
				if got, err := s.client.PrepareRelease(t.Context(), releases); err != nil || len(got) != 0 {
					t.Errorf("once it is back: %v, %v", got, err)
				}
			})
		})
	}
}

// A gateway that stops cleanly between the poll and the prepare is not asked, but
// the floor says that something was forgotten. The same goes for one that was
// replaced.
func TestPrepareReleaseSeesAGatewayGo(t *testing.T) {
	for name, goes := range map[string]func(*simulation, *gateway){
		"stopped": func(s *simulation, g *gateway) {
			if err := g.Leave(s.t.Context(), true); err != nil {
				s.t.Error(err)
			}
		},
		"replaced": func(s *simulation, g *gateway) { g.kill(); s.run("g2", "b2") },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulation) {
				s.run("g1", "a")
				g := s.run("g2", "b")
				if _, err := s.client.GetLastActive(t.Context()); err != nil {
					t.Fatal(err)
				}
				before := s.client.Floor()
				after(time.Minute)
				goes(s, g)
				// Until the watch has shown the clean stop, the gateway counts as one whose
				// lease vanished: it is asked, and tells itself what is in use.
				synctest.Wait()
				if _, err := s.client.PrepareRelease(t.Context(), releases); err != nil {
					t.Fatal(err)
				}
				if got := s.client.Floor(); !got.After(before) {
					t.Errorf("the floor stayed at %v", got)
				}
			})
		})
	}
}

// A gateway that joins after the list was made is not waited for: it finds the
// tokens in its own list.
func TestPrepareReleaseWithoutGateways(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		if got, err := s.client.PrepareRelease(t.Context(), releases); err != nil || len(got) != 0 {
			t.Errorf("%v, %v", got, err)
		}
		s.api.setAway(true)
		if _, err := s.client.PrepareRelease(t.Context(), releases); err == nil {
			t.Error("prepared without knowing the gateways")
		}
		s.api.setAway(false)
	})
}
