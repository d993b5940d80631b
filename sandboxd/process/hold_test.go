package process

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Time that is held is nobody's: what is due passes as much later, also what was set
// meanwhile, and what was due already passes after.
func TestHeldDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
		s.Hold()
		set("meanwhile", time.Second)
		time.Sleep(10 * time.Second)
		s.Release()
		stop()
		time.Sleep(10 * time.Second)
		s.Hold()
		s.Release()
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

// While held nothing starts; what waited starts after, unless its request is over.
func TestHeldStarts(t *testing.T) {
	s := &Service{log: io.Discard}
	s.Hold()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	left, stays := make(chan error), make(chan error)
	for ctx, to := range map[context.Context]chan error{over: left, t.Context(): stays} {
		go func() {
			forked, err := s.holding.starting(ctx)
			if err == nil {
				forked()
			}
			to <- err
		}()
	}
	select {
	case <-left:
		t.Error("it did not wait")
	case <-stays:
		t.Error("it has started")
	case <-time.After(20 * time.Millisecond):
	}
	s.Release()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("that whose request is over: %v", err)
	}
	if err := <-stays; err != nil {
		t.Errorf("the other: %v", err)
	}
}
