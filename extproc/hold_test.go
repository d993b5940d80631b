package extproc

import (
	"context"
	"errors"
	"net/http"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sandlane/sandlane/routing"
)

// A request of a claim that is held waits, parked, and Envoy knows. If the
// release is called off it is answered by the sandbox.
func TestHeldRequestIsAnsweredByTheSandboxThatStays(t *testing.T) {
	f := newFixture(t)
	r := testRoute("a")
	f.put(t, r)
	use := f.activity.ClaimUse("a", r.ClaimID)
	use.SetHolding(true)
	f.holds.await = func(_ context.Context, id, claim string) error {
		if id != "a" || claim != r.ClaimID {
			t.Errorf("waits for %s/%s", id, claim)
		}
		if use.Load() == 0 || !f.activity.isParked("a") {
			t.Errorf("a request that waits has use %d and is parked %d times", use.Load(), f.activity.parked["a"])
		}
		use.SetHolding(false)
		return nil
	}
	got := f.ask(t, host("a")...)
	if got.destination != "198.18.0.7:8000" || got.claim != r.ClaimID || !got.waited {
		t.Errorf("answer %+v", got)
	}
	if n := testutil.ToFloat64(f.Server.metrics.requests.WithLabelValues(outcomeHeld, "")); n != 1 || f.activity.isParked("a") {
		t.Errorf("counted %v times, parked %d", n, f.activity.parked["a"])
	}
}

// Only a request that was sent to its sandbox counts as open.
func TestUnsentRequestsAreNotOpen(t *testing.T) {
	f := newFixture(t)
	f.put(t, testRoute("a"))
	open := func(want int32, when string) {
		t.Helper()
		if n := f.o.Room.(*fakeRoom).opened.Load(); n != want {
			t.Errorf("%s %d are open, want %d", when, n, want)
		}
	}
	use := f.activity.ClaimUse("a", "claim-a")
	use.SetHolding(true)
	f.holds.await = func(context.Context, string, string) error {
		open(0, "while it is held")
		use.SetHolding(false)
		return nil
	}
	f.ask(t, host("a")...)
	open(1, "once it is sent")
	s := newStream(t.Context(), host("a")...)
	s.onSend = func(*extprocv3.ProcessingResponse) error { return errors.New("broken") }
	if err := f.Process(s); err == nil {
		t.Error("no error")
	}
	open(1, "after a send that failed")
}

// If the release is carried out it is answered as one for an ended sandbox, never
// with the route, also while that is still in the cache.
func TestHeldRequestIsAnsweredAsForAnEndedOne(t *testing.T) {
	f := newFixture(t)
	f.put(t, testRoute("a"))
	f.activity.ClaimUse("a", "claim-a").SetHolding(true)
	f.holds.await = func(context.Context, string, string) error { return routing.ErrNotFound }
	if got := f.ask(t, host("a")...); got.status != http.StatusBadGateway || got.destination != "" {
		t.Errorf("answer %+v", got)
	}
}

// While it is not known what became of the release there is no route either.
func TestHeldRequestWithoutAnOutcome(t *testing.T) {
	for name, await := range map[string]func(f *fixture) error{
		"the API server is away": func(*fixture) error { return errors.New("no answer") },
		"it stays held":          func(*fixture) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			r := testRoute("a")
			f.put(t, r)
			f.resolver.index["a"] = running(r)
			f.activity.ClaimUse("a", r.ClaimID).SetHolding(true)
			f.holds.await = func(context.Context, string, string) error { return await(f) }
			if got := f.ask(t, host("a")...); got.status != http.StatusServiceUnavailable || got.destination != "" {
				t.Errorf("answer %+v", got)
			}
		})
	}
}

// A release that sets the hold and then reads the use sees the request, or the
// request sees the hold: here the look comes at the last moment before the touch,
// and at the first after the request was let through.
func TestNoRequestSlipsBetweenHoldAndLook(t *testing.T) {
	t.Run("just before the touch", func(t *testing.T) {
		f := newFixture(t)
		f.put(t, testRoute("a"))
		use := f.activity.ClaimUse("a", "claim-a")
		seen := int64(-1)
		f.Server.o.Now = func() int64 {
			if seen < 0 {
				use.SetHolding(true)
				seen = use.Load()
			}
			return 7
		}
		f.holds.await = func(context.Context, string, string) error { return routing.ErrNotFound }
		if got := f.ask(t, host("a")...); got.status != http.StatusBadGateway || seen != 0 || f.holds.waited.Load() != 1 {
			t.Errorf("not seen in use (use %d), waited %d times, and answered %+v", seen, f.holds.waited.Load(), got)
		}
	})
	t.Run("just before the answer", func(t *testing.T) {
		f := newFixture(t)
		f.put(t, testRoute("a"))
		use := f.activity.ClaimUse("a", "claim-a")
		f.Server.o.Now = func() int64 { return 7 }
		s := newStream(t.Context(), host("a")...)
		seen := int64(0)
		s.onSend = func(*extprocv3.ProcessingResponse) error {
			use.SetHolding(true)
			seen = use.Load()
			return nil
		}
		if err := f.Process(s); err != nil {
			t.Fatal(err)
		}
		if got := s.answer(t); got.destination == "" || seen != 7 {
			t.Errorf("answered %+v, and the look saw %d", got, seen)
		}
	})
}

// A sandbox that has as many requests open as it may gets no further one, and is not
// noted as used by it; when it has fewer it is reached again.
func TestFullSandbox(t *testing.T) {
	f := newFixture(t)
	r := testRoute("a")
	f.put(t, r)
	use := f.activity.ClaimUse("a", r.ClaimID)
	use.SetFull(true)
	if got := f.ask(t, host("a")...); got.status != http.StatusTooManyRequests || got.destination != "" || use.Load() != 0 {
		t.Errorf("answer %+v, noted at %d", got, use.Load())
	}
	use.SetFull(false)
	if got := f.ask(t, host("a")...); got.destination != "198.18.0.7:8000" {
		t.Errorf("answer %+v", got)
	}
}

// A request that its namespace has no room for is a use of its sandbox, which would be released
// as idle otherwise while its client tries again and again.
func TestARequestWithoutRoomIsAUse(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Room = &fakeRoom{full: true} })
	r := testRoute("a")
	f.put(t, r)
	f.Server.o.Now = func() int64 { return 7 }
	if got, use := f.ask(t, host("a")...), f.activity.ClaimUse("a", r.ClaimID); got.status != http.StatusTooManyRequests || use.Load() != 7 {
		t.Errorf("answer %+v, noted at %d", got, use.Load())
	}
}
