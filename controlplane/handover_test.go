package controlplane

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// poll asks for what is in use each second for a while, as the idle check does.
func (s *simulation) poll(d time.Duration) {
	s.t.Helper()
	for begin := time.Now(); time.Since(begin) < d; after(time.Second) {
		if err := s.client.Poll(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// leave stops a gateway cleanly, whose last use of "sbx" was just now.
func (s *simulation) leave(g *gateway, handOver bool) {
	s.t.Helper()
	// Envoy is gone: without the hand-over nothing is known.
	g.use.set(func(r *ActivityReport) {
		r.Cursor, r.Entries, r.Known = r.Cursor+1, []Activity{{"sbx", g.o.Name, 0}}, false
	})
	if handOver {
		ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Second)
		defer cancel()
		told := make(chan error, 1)
		go func() { told <- g.service.HandOver(ctx) }()
		synctest.Wait()
		s.poll(2 * time.Second)
		if err := <-told; err != nil {
			s.t.Fatal(err)
		}
	}
	if err := g.Leave(s.t.Context(), handOver); err != nil {
		s.t.Fatal(err)
	}
	g.cancel = nil
	g.kill()
	after(time.Millisecond)
}

// Gateways come and go more often than anything is idle for long enough: each clean
// stop hands its last uses over, and raises no floor. What is not handed over does.
func TestACleanStopHandsItsLastUsesOver(t *testing.T) {
	for _, handOver := range []bool{true, false} {
		t.Run(fmt.Sprint(handOver), func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulation) {
				s.run("stays", "z")
				s.poll(time.Second)
				began := s.client.Floor()
				for i := range 5 {
					g := s.run(fmt.Sprintf("g%d", i), fmt.Sprintf("p%d", i))
					s.poll(time.Minute)
					used := time.Now()
					s.leave(g, handOver)
					if at, ok := s.client.LastActive("sbx", g.o.Name); handOver && (!ok || at.Before(used)) {
						t.Errorf("its last use is known as %v, want %v", at, used)
					}
				}
				s.poll(time.Minute)
				if got := s.client.Floor(); got.Equal(began) != handOver {
					t.Errorf("the floor rose by %v", got.Sub(began))
				}
			})
		})
	}
}

// The next process under a lease whose last one has told all begins with no loss; one
// that replaces a process that was killed does.
func TestNextProcessAfterAHandOver(t *testing.T) {
	for _, handOver := range []bool{true, false} {
		t.Run(fmt.Sprint(handOver), func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulation) {
				g := s.run("g1", "a")
				s.poll(time.Second)
				began := s.client.Floor()
				after(time.Minute)
				if handOver {
					go func() { _ = g.service.HandOver(t.Context()) }()
					synctest.Wait()
				}
				s.poll(3 * time.Second)
				g.kill()
				b := s.run("g1", "b")
				s.poll(3 * time.Second)
				if got := s.client.Floor(); got.Equal(began) != handOver {
					t.Errorf("the floor rose by %v", got.Sub(began))
				}
				b.kill()
				s.run("g1", "c") // it was handed nothing of b's
				s.poll(time.Second)
				if got := s.client.Floor(); got.Equal(began) {
					t.Error("what a killed process knew does not count as lost")
				}
			})
		})
	}
}

// A final answer counts when the controller has it, not when it was sent.
func TestHandOverWaitsForTheControllersNextPoll(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		g := s.run("g1", "a")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		told := make(chan error, 1)
		go func() { told <- g.service.HandOver(ctx) }()
		synctest.Wait()
		s.poll(time.Second)
		select {
		case err := <-told:
			t.Fatalf("told after one answer: %v", err)
		default:
		}
		after(3 * time.Second)
		if err := <-told; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("HandOver returned %v", err)
		}
	})
}
