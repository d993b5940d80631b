package limits

import (
	"context"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/bubble"
)

// A namespace whose connections are not taken has no more than its share of those that wait,
// also while Envoy rests between two tries, and others have theirs.
func TestPendingRequestsCountForTheirNamespace(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		w := newOpenWorld()
		w.look()
		w.spare = map[string]int{"greedy": 0, "other": 50}
		waits := 0
		for try := range 150 {
			for range 2 * streams { // until it is refused
				if !w.Open(route("greedy")) {
					break
				}
				waits++
			}
			w.pending, w.spare["greedy"] = waits, waits
			if try%50 == 49 { // each second all are between two tries
				w.failed, w.retried = w.failed+waits, w.retried+waits
				w.pending, w.spare["greedy"] = 0, 0
			}
			time.Sleep(restMin)
			w.look()
		}
		if waits > streams*21/20 {
			t.Errorf("%d wait for one namespace", waits)
		}
		if n := w.sends("other", 100); n != 100 {
			t.Errorf("of another namespace %d are admitted", n)
		}
	})
}

// Requests that got no connection are not in transit, tried again or not.
func TestFailedRequestsAreNotOpen(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		w := newOpenWorld()
		w.look()
		for range 100 { // 10,000 a second
			for range 200 {
				if !w.Open(route("crashed")) {
					t.Fatal("a request is refused while none is open")
				}
			}
			w.failed, w.retried = w.failed+400, w.retried+200
			time.Sleep(restMin)
			w.look()
			if n := w.OpenRequests.total.Load(); n != 0 {
				t.Fatalf("%d are open", n)
			}
		}
	})
}

// Without an answer about each sandbox the shares bind as before; a slow Envoy is not waited
// for.
func TestShareBindsWhileOnePollFails(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		w := newOpenWorld()
		w.sends("greedy", 2*streams)
		w.look()
		w.Looking()(nil, nil)
		if n := w.sends("greedy", 1); n != 0 {
			t.Error("a namespace with its share open gets more")
		}
		w.o.Total = func(ctx context.Context) (Load, error) { <-ctx.Done(); return Load{}, ctx.Err() }
		w.o.Refresh = func(context.Context) error { return nil }
		asked := time.Now()
		w.OpenRequests.look(context.Background())
		if took := time.Since(asked); took >= time.Second {
			t.Errorf("a poll waits %v for a look", took)
		}
	})
}

// A namespace with its share open gets no more because Envoy answers late, as on a machine
// whose processors are busy. An Envoy that is late for long binds nobody.
func TestLateEnvoyForgetsNothing(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		w := newOpenWorld()
		w.look()
		w.sends("greedy", 2*streams)
		w.o.Total = func(ctx context.Context) (Load, error) { <-ctx.Done(); return Load{}, ctx.Err() }
		for began := time.Now(); time.Since(began)+lookMax < lateMax; {
			w.OpenRequests.look(t.Context())
			if n := w.sends("greedy", 1); n != 0 {
				t.Fatalf("after %v a namespace with its share open gets more", time.Since(began))
			}
		}
		w.OpenRequests.look(t.Context())
		w.OpenRequests.look(t.Context())
		if n := w.sends("greedy", 100); n != 100 {
			t.Errorf("%d are admitted when Envoy was late for %v", n, lateMax)
		}
	})
}
