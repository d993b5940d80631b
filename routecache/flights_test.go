package routecache

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandlane/sandlane/test/bubble"
)

// waitAsync starts a wait and returns its result channel.
func waitAsync(ctx context.Context, c *Cache) <-chan error {
	done := make(chan error, 1)
	go func() { done <- c.WaitFlights(ctx) }()
	return done
}

func returned(done <-chan error) bool {
	synctest.Wait()
	return len(done) == 1
}

func TestWaitFlightsWaitsForThePastOnly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := New(1)
		before := c.Enter()
		done := waitAsync(t.Context(), c)
		if returned(done) {
			t.Fatal("returned while a handler from before was in flight")
		}
		after := c.Enter()
		if returned(done) {
			t.Fatal("a new handler ended the wait")
		}
		before.Leave()
		if !returned(done) {
			t.Fatal("a handler that entered later holds the wait up")
		}
		second := waitAsync(t.Context(), c)
		if returned(second) {
			t.Fatal("the second wait did not wait for the handler that entered during the first")
		}
		after.Leave()
		if !returned(second) || <-second != nil {
			t.Fatal("the second wait does not end")
		}
	})
}

// A handler may have read the phase and count itself only after whole waits
// have passed. It must still be waited for.
func TestWaitFlightsSeesStragglers(t *testing.T) {
	for waits := range 4 {
		bubble.Test(t, func(t *testing.T) {
			c := New(1)
			phase := c.flights.phase.Load()
			for range waits {
				if err := c.WaitFlights(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			straggler := c.flights.enter(phase)
			done := waitAsync(t.Context(), c)
			if returned(done) {
				t.Errorf("after %d waits a straggler was not waited for", waits)
			}
			straggler.Leave()
			if !returned(done) {
				t.Error("the wait does not end")
			}
		})
	}
}

func TestWaitFlightsGivesUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := New(1)
		stuck := c.Enter()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.Fence(ctx, []Fence{{Addr: netip.MustParseAddr("10.0.0.1"), RV: 1}})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("err = %v, want the deadline", err)
		}
		// The wait that gave up acknowledges nothing for those behind it.
		done := waitAsync(t.Context(), c)
		if returned(done) {
			t.Fatal("a wait returned while the handler was still in flight")
		}
		// One that cannot get its turn obeys its context too.
		ctx2, cancel2 := context.WithCancel(t.Context())
		blocked := waitAsync(ctx2, c)
		cancel2()
		if !returned(blocked) || !errors.Is(<-blocked, context.Canceled) {
			t.Fatal("a wait without its turn does not give up")
		}
		stuck.Leave()
		if !returned(done) || <-done != nil {
			t.Fatal("the wait does not end")
		}
	})
}

// Waits that come during a wait share one.
func TestWaitFlightsShare(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := New(1)
		flight := c.Enter()
		first := waitAsync(t.Context(), c)
		synctest.Wait()
		var others []<-chan error
		for range 50 {
			others = append(others, waitAsync(t.Context(), c))
		}
		synctest.Wait()
		flight.Leave()
		synctest.Wait()
		for _, done := range append(others, first) {
			if !returned(done) || <-done != nil {
				t.Fatal("a wait does not end")
			}
		}
		if n := c.flights.started.Load(); n != 2 {
			t.Errorf("51 waits made %d passes, want 2", n)
		}
	})
}
