package controlplane

import (
	"context"
	"testing"
	"time"
)

// killController leaves no controller.
func (s *simulation) killController() {
	s.client.Close()
	s.unwatch()
	s.unwatch = func() {}
}

// nextController is one that knows nothing yet.
func (s *simulation) nextController() {
	s.t.Helper()
	o := s.client.o
	s.directory = s.newDirectory()
	o.Directory = s.directory
	s.unwatch = s.directory.watch(s.t)
	client, err := NewClient(o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.client = client
	s.closers = append(s.closers, client.Close)
	after(time.Millisecond)
}

// Controllers are replaced more often than anything is idle for long enough, and so are
// gateways, by clean stops: each controller knows what the one before knew, and what gateways
// told that are gone.
func TestTheNextControllerKnowsWhatTheLastOneKnew(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		s.run("stays", "z")
		s.poll(time.Second)
		began, saw := s.client.Floor(), time.Now()
		s.client.SeenRunning("sbx", "c", saw, 7)
		for i := range 4 {
			name := string(rune('a' + i))
			g := s.run(name, name)
			s.poll(5 * time.Second)
			used := time.Now()
			s.leave(g, true)
			s.killController()
			after(5 * time.Second)
			s.nextController()
			s.poll(time.Second)
			if got := s.client.Floor(); got.Sub(began) > time.Millisecond {
				t.Fatalf("controller %d: the floor rose by %v", i, got.Sub(began))
			}
			if at, order, ok := s.client.RunningSince("sbx", "c"); !ok || order != 7 || at.Before(saw) || at.Sub(saw) > time.Millisecond {
				t.Fatalf("controller %d: the claim runs since %v, order %d, %v", i, at.Sub(saw), order, ok)
			}
			if at, ok := s.client.LastActive("sbx", name); !ok || at.Before(used) {
				t.Fatalf("controller %d: the last use at a gateway that left is %v, want %v", i, at, used)
			}
		}
	})
}

// What may be lost with a process that no controller saw go counts as lost: the floor is
// then the new controller's first poll.
func TestNextControllerDoesNotTrustAMemoryWithGaps(t *testing.T) {
	for name, tc := range map[string]struct {
		between func(s *simulation, keeper, other *gateway)
		loses   bool
	}{
		"nothing happened":     {func(*simulation, *gateway, *gateway) {}, false},
		"another gateway came": {func(s *simulation, _, _ *gateway) { s.run("new", "n") }, false},
		"a gateway was killed and started again": {func(s *simulation, _, other *gateway) {
			other.kill()
			s.run("g2", "b2")
		}, true},
		"the keeper was killed and started again": {func(s *simulation, keeper, _ *gateway) {
			keeper.kill()
			s.run("g1", "a2")
		}, true},
		"a gateway came, was killed and started again": {func(s *simulation, _, _ *gateway) {
			s.run("new", "n").kill()
			s.run("new", "n2")
		}, true},
		"a gateway left and told nobody": {func(s *simulation, _, other *gateway) { s.leave(other, false) }, true},
		"a gateway came, and left and told nobody": {func(s *simulation, _, _ *gateway) {
			s.leave(s.run("new", "n"), false)
		}, true},
		"a killed gateway's lease was deleted by hand": {func(s *simulation, _, other *gateway) {
			other.kill()
			s.api.drop("g2")
		}, true},
		"the keeper lost its lease": {func(s *simulation, keeper, _ *gateway) {
			s.api.drop("g1")
			after(15 * time.Second)
			keeper.wantHeld(s.t, true, "joined anew")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulation) {
				keeper, other := s.run("g1", "a"), s.run("g2", "b")
				s.poll(2 * time.Second)
				began := s.client.Floor()
				s.killController()
				tc.between(s, keeper, other)
				after(time.Second)
				asked := time.Now()
				s.nextController()
				s.poll(time.Second)
				got := s.client.Floor()
				if lost := !got.Before(asked); lost != tc.loses || !lost && got.Sub(began) > time.Millisecond {
					t.Errorf("the floor is %v after the old one, and %v after the new controller's first poll", got.Sub(began), got.Sub(asked))
				}
			})
		})
	}
}

// A gateway that a controller saw come and go while it could tell nobody is seen by the next
// controller, which the keeper tells of a time without that gateway.
func TestALossIsLeftToTheNextControllerUntilItIsRemembered(t *testing.T) {
	for name, goes := range map[string]func(*simulation, *gateway){
		"killed":               func(_ *simulation, g *gateway) { g.kill() },
		"left and told nobody": func(s *simulation, g *gateway) { s.leave(g, false) },
		"left and told the controller alone": func(s *simulation, g *gateway) {
			ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Second)
			defer cancel()
			told := make(chan error, 1)
			go func() { told <- g.service.HandOver(ctx) }()
			for range 4 {
				_ = s.client.Poll(s.t.Context())
				after(time.Second)
			}
			if err := <-told; err == nil {
				s.t.Error("its last uses count as told")
			}
			s.leave(g, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulation) {
				s.run("keeper", "k")
				s.poll(2 * time.Second)
				s.cutOff("keeper", true)
				goes(s, s.run("came", "c"))
				for begin := time.Now(); time.Since(begin) < 12*time.Minute; after(10 * time.Second) {
					if s.client.Poll(t.Context()) == nil {
						t.Fatal("the keeper answers though it is cut off")
					}
					if gateways, err := s.directory.List(t.Context()); err != nil || len(gateways) == 1 {
						break // the controller knows that it is over
					}
				}
				after(time.Minute)
				s.killController()
				s.cutOff("keeper", false)
				asked := time.Now()
				s.nextController()
				for s.client.Poll(t.Context()) != nil {
					if after(10 * time.Second); time.Since(asked) > 12*time.Minute {
						t.Fatal("the next controller never knows what is in use")
					}
				}
				if got := s.client.Floor(); got.Before(asked) {
					t.Errorf("the floor is %v before the new controller's first poll", asked.Sub(got))
				}
				s.poll(30 * time.Second)
				if s.api.get("came") != nil {
					t.Error("its lease stays though its loss is remembered")
				}
			})
		})
	}
}

// A gateway that leaves hears no acknowledgement before another one remembers what it knew:
// the controller may be killed at any moment after.
func TestAHandOverIsRememberedBeforeItIsAcknowledged(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		s.run("keeper", "k")
		g := s.run("leaves", "l")
		s.poll(2 * time.Second)
		g.use.set(func(r *ActivityReport) { r.Cursor, r.Entries = r.Cursor+1, []Activity{{"sbx", "c", 0}} })
		told := make(chan error, 1)
		go func() { told <- g.service.HandOver(t.Context()) }()
		after(time.Millisecond)
		if err := s.client.Poll(t.Context()); err != nil { // the final answer
			t.Fatal(err)
		}
		s.client.activity.mu.Lock()
		s.client.activity.all, s.client.activity.keeper = true, "" // as when the keeper did not answer
		s.client.activity.mu.Unlock()
		if err := s.client.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-told:
			t.Fatalf("acknowledged though no gateway remembers it: %v", err)
		default:
		}
		if err := s.client.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		after(time.Millisecond)
		select {
		case err := <-told:
			if err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatal("not acknowledged though it is remembered")
		}
	})
}

// While nothing is new no gateway is told anything, whatever is in use.
func TestNothingNewIsToldToNobody(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		g := s.run("g1", "a")
		s.client.SeenRunning("sbx", "c", time.Now(), 1)
		s.poll(time.Second)
		g.use.set(func(r *ActivityReport) { r.Cursor, r.Entries = r.Cursor+1, []Activity{{"sbx", "c", 0}} })
		s.poll(10 * time.Second)
		s.client.SeenRunning("sbx", "c", time.Now().Add(-time.Hour), 1) // not news
		s.poll(time.Second)
		g.use.mu.Lock()
		defer g.use.mu.Unlock()
		if len(g.use.seen) != 1 || len(g.use.used) != 0 {
			t.Errorf("told %v and %v", g.use.seen, g.use.used)
		}
	})
}
