package process

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandlane/sandlane/test/bubble"
)

// Held time counts for no deadline: what is due passes as much later, also what was set
// meanwhile, and what was due already passes after.
func TestHeldDeadlines(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &Service{log: io.Discard}
		begun := time.Now()
		var mu sync.Mutex
		passed := map[string]time.Duration{} // guarded by mu
		set := func(name string, in time.Duration) (stop func()) {
			return s.holding.at(time.Now().Add(in), func() {
				mu.Lock()
				defer mu.Unlock()
				passed[name] = time.Since(begun)
			})
		}
		set("before", time.Second)
		set("long", 5*time.Second)
		stop := set("stopped", 6*time.Second)
		time.Sleep(2 * time.Second)
		hold(t, s)
		set("meanwhile", time.Second)
		time.Sleep(10 * time.Second)
		s.Continue()
		stop()
		time.Sleep(10 * time.Second)
		hold(t, s)
		s.Continue()
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want := map[string]time.Duration{"before": time.Second, "long": 15 * time.Second, "meanwhile": 13 * time.Second}
		for name, at := range want {
			if passed[name] != at {
				t.Errorf("%s passed at %s, want %s", name, passed[name], at)
			}
		}
		if len(passed) != len(want) || len(s.holding.deadlines) != 0 {
			t.Errorf("passed: %v; %d are kept", passed, len(s.holding.deadlines))
		}
	})
}

func hold(t *testing.T, s *Service) {
	t.Helper()
	if err := s.Hold(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// While held nothing starts; what waited starts after, unless its request is over.
func TestHeldStarts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &Service{log: io.Discard}
		hold(t, s)
		left, leave := context.WithCancel(t.Context())
		leaves, stays := make(chan error, 1), make(chan error, 1)
		for ctx, to := range map[context.Context]chan error{left: leaves, t.Context(): stays} {
			go func() {
				forked, err := s.holding.starting(ctx)
				if err == nil {
					forked()
				}
				to <- err
			}()
		}
		synctest.Wait()
		if len(leaves)+len(stays) > 0 {
			t.Error("one has started")
		}
		leave()
		if err := <-leaves; !errors.Is(err, context.Canceled) {
			t.Errorf("that whose request is over: %v", err)
		}
		s.Continue()
		if err := <-stays; err != nil {
			t.Errorf("the other: %v", err)
		}
	})
}

// A fork that takes long keeps no freeze for longer than its time: nothing is held then.
// One that ends in time is waited for.
func TestHoldWaitsForForks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &Service{log: io.Discard}
		forked, err := s.holding.starting(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		passed := false
		s.holding.at(time.Now().Add(2*time.Second), func() { passed = true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Hold(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a hold beside a fork that goes on: %v", err)
		}
		other, err := s.holding.starting(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		other()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !passed {
			t.Error("after a hold that failed a deadline stands still")
		}
		time.AfterFunc(time.Second, forked)
		begun := time.Now()
		if hold(t, s); time.Since(begun) != time.Second {
			t.Errorf("it returned after %s", time.Since(begun))
		}
		s.Continue()
	})
}
