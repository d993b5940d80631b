package extproc

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/bubble"
)

func (f *fixture) outcomes(outcome, reason string) float64 {
	return testutil.ToFloat64(f.Server.metrics.requests.WithLabelValues(outcome, reason))
}

func TestMissResolvedByIndex(t *testing.T) {
	f := newFixture(t)
	f.resolver.setIndex("hello", running(testRoute("hello")))
	a := f.ask(t, host("hello")...)
	if a.destination != "198.18.0.7:8000" || a.waited {
		t.Errorf("answer %+v: an index answer does not leave the process", a)
	}
	if r := f.cache.Get("hello"); r == nil || r.Use == nil || r.Use.Load() == 0 {
		t.Error("the route is not cached with its use")
	}
	if f.outcomes(outcomeResolved, "") != 1 || f.resolver.reads != 0 {
		t.Error("not counted as resolved by the index")
	}
}

func TestMissResolvedLive(t *testing.T) {
	f := newFixture(t)
	f.resolver.live["hello"] = running(testRoute("hello"))
	a := f.ask(t, host("hello")...)
	if a.destination == "" || !a.waited {
		t.Errorf("answer %+v: Envoy must be told to wait before a live read", a)
	}
}

func TestWaitOverrideIsSentOnce(t *testing.T) {
	f := newFixture(t)
	f.resolver.setIndex("hello", routing.Answer{State: routing.NoPod, Namespace: "default", Pool: "echo"})
	f.resolver.live["hello"] = routing.Answer{State: routing.NoPod, Namespace: "default", Pool: "echo"}
	f.act.do = func(context.Context, routing.Request) error { return nil } // and nothing comes of it
	s := newStream(t.Context(), host("hello")...)
	if err := f.Process(s); err != nil {
		t.Fatal(err)
	}
	if len(s.sent) != 2 {
		t.Fatalf("%d Sends", len(s.sent))
	}
	if got := s.sent[0].GetOverrideMessageTimeout().AsDuration(); got != DefaultMaxWait+WaitMargin {
		t.Errorf("override %v", got)
	}
	if a := s.answer(t); a.status != http.StatusServiceUnavailable || a.retryAfter != "1" {
		t.Errorf("answer %+v", a)
	}
	if len(f.act.calls) != maxRounds || f.outcomes(outcomeRejected, reasonUnsettled) != 1 {
		t.Errorf("%d rounds", len(f.act.calls))
	}
}

func TestEndedIsNotFound(t *testing.T) {
	f := newFixture(t, withDefaultPool)
	f.resolver.setIndex("hello", routing.Answer{State: routing.Ended, Namespace: "default"})
	a := f.ask(t, host("hello")...)
	if a.status != http.StatusBadGateway || a.body.Message != "The sandbox was not found" || a.body.SandboxID != "hello" {
		t.Errorf("answer %+v", a)
	}
	if len(f.act.calls) > 0 {
		t.Error("an ended sandbox was activated")
	}
}

// What ended between the read and Put must not be answered with.
func TestRefusedPutIsResolvedAgain(t *testing.T) {
	f := newFixture(t)
	old := testRoute("hello")
	f.resolver.setIndex("hello", running(old))
	if err := f.cache.Fence(t.Context(), []routecache.Fence{{Addr: old.Addr, RV: old.PodRV + 1}}); err != nil {
		t.Fatal(err)
	}
	next := testRoute("hello")
	next.PodRV, next.ClaimID = old.PodRV+2, "next"
	f.resolver.live["hello"] = running(next)
	if a := f.ask(t, host("hello")...); a.claim != "next" {
		t.Errorf("answer %+v", a)
	}
	if f.resolver.reads != 1 {
		t.Errorf("%d live reads", f.resolver.reads)
	}
}

func TestRefusedForGoodIsBounded(t *testing.T) {
	f := newFixture(t)
	old := testRoute("hello")
	f.resolver.setIndex("hello", running(old))
	f.resolver.live["hello"] = running(old)
	if err := f.cache.Fence(t.Context(), []routecache.Fence{{Addr: old.Addr, RV: old.PodRV + 1}}); err != nil {
		t.Fatal(err)
	}
	if a := f.ask(t, host("hello")...); a.status != http.StatusServiceUnavailable {
		t.Errorf("answer %+v", a)
	}
}

func TestEndWhileResolving(t *testing.T) {
	f := newFixture(t)
	f.resolver.live["hello"] = running(testRoute("hello"))
	f.resolver.onRead = func(context.Context) error {
		f.cache.Invalidate("hello") // the end is seen while the read is under way
		f.resolver.mu.Lock()
		defer f.resolver.mu.Unlock()
		f.resolver.live["hello"] = routing.Answer{State: routing.Ended}
		return nil
	}
	if a := f.ask(t, host("hello")...); a.status != http.StatusBadGateway {
		t.Errorf("answer %+v", a)
	}
}

func TestAnswerAboutAnotherSandboxIsRefused(t *testing.T) {
	f := newFixture(t)
	f.resolver.setIndex("hello", running(testRoute("other")))
	if a := f.ask(t, host("hello")...); a.status != http.StatusServiceUnavailable || a.destination != "" {
		t.Errorf("answer %+v", a)
	}
	f.resolver.setIndex("hello", routing.Answer{State: routing.Running})
	if a := f.ask(t, host("hello")...); a.status != http.StatusServiceUnavailable {
		t.Errorf("answer %+v", a)
	}
}

func TestLiveReadErrors(t *testing.T) {
	for _, tt := range []struct {
		err    error
		reason string
	}{{routing.ErrLimited, reasonLimited}, {errors.New("api server is away"), reasonInternal}} {
		f := newFixture(t)
		f.resolver.liveErr = tt.err
		a := f.ask(t, host("hello")...)
		if a.status != http.StatusServiceUnavailable || a.retryAfter == "" || f.outcomes(outcomeRejected, tt.reason) != 1 {
			t.Errorf("%v: %+v: an unknown state is never 'not found'", tt.err, a)
		}
	}
}

// A first request that may make its sandbox needs no live read: the create
// itself finds out whether the ID is free.
func TestFirstRequest(t *testing.T) {
	f := newFixture(t, withDefaultPool)
	f.act.do = func(context.Context, routing.Request) error {
		if !f.activity.isParked("new") {
			t.Error("a waiting request does not count as use")
		}
		if got := testutil.ToFloat64(f.Server.metrics.parked); got != 1 {
			t.Errorf("parked %v", got)
		}
		f.put(t, testRoute("new"))
		return nil
	}
	a := f.ask(t, host("new")...)
	if a.destination == "" || !a.waited {
		t.Errorf("answer %+v", a)
	}
	want := routing.Request{ID: "new", Namespace: "default", Pool: "echo", New: true}
	if len(f.act.calls) != 1 || f.act.calls[0] != want {
		t.Errorf("activations %+v", f.act.calls)
	}
	if f.resolver.reads != 0 || f.outcomes(outcomeClaimed, "") != 1 {
		t.Errorf("%d live reads", f.resolver.reads)
	}
	if f.activity.isParked("new") || testutil.ToFloat64(f.Server.metrics.parked) != 0 {
		t.Error("still parked")
	}
}

// The sandbox stays in use until the answer is sent: no gap between parking and
// the use.
func TestParkedUntilAnswered(t *testing.T) {
	f := newFixture(t, withDefaultPool)
	f.act.do = func(context.Context, routing.Request) error { f.put(t, testRoute("new")); return nil }
	s := newStream(t.Context(), host("new")...)
	s.onSend = func(r *extprocv3.ProcessingResponse) error {
		if !f.activity.isParked("new") {
			t.Errorf("not parked while sending %v", r)
		}
		return nil
	}
	if err := f.Process(s); err != nil {
		t.Fatal(err)
	}
}

// The index did not know the sandbox yet: it is read live and authorised anew.
func TestFirstRequestForAnExistingSandbox(t *testing.T) {
	f := newFixture(t, withDefaultPool)
	r := testRoute("hello")
	r.Private, r.TokenUID = true, new(types.UID("uid"))
	f.resolver.live["hello"] = routing.Answer{State: routing.NoPod, Namespace: "default", Pool: "echo", Private: true, UID: "uid"}
	f.act.do = func(context.Context, routing.Request) error { return routing.ErrExists }
	if a := f.ask(t, host("hello")...); a.status != http.StatusForbidden {
		t.Errorf("answer %+v", a)
	}
	if len(f.act.calls) != 1 {
		t.Errorf("activations %+v", f.act.calls)
	}
}

// A sandbox that starts, or whose processes may be frozen, is reached by following its
// activation, which wakes it.
func TestStartingIsFollowed(t *testing.T) {
	for _, state := range []routing.State{routing.Starting, routing.MaybeFrozen} {
		f := newFixture(t)
		f.resolver.setIndex("hello", routing.Answer{State: state, Namespace: "team", Pool: "closed", Team: "red"})
		f.act.do = func(context.Context, routing.Request) error {
			r := testRoute("hello")
			r.Pool = routecache.PoolOf("team", "closed")
			f.resolver.setIndex("hello", running(r))
			return nil
		}
		if a := f.ask(t, append(host("hello"), "x-sandbox-api-key", "key-team")...); a.destination == "" {
			t.Errorf("%v: answer %+v", state, a)
		}
		want := routing.Request{ID: "hello", Namespace: "team", Pool: "closed", Team: "red"}
		if len(f.act.calls) != 1 || f.act.calls[0] != want || f.outcomes(outcomeParked, "") != 1 {
			t.Errorf("%v: activations %+v", state, f.act.calls)
		}
		if f.resolver.reads != 0 {
			t.Errorf("%v: the index had caught up; no live read was needed", state)
		}
	}
}

// The index may know of a claim and not of its pod yet, which says what must be shown on sandboxd's
// port: the API server is read before a request is refused.
func TestStartingPodThatTheIndexHasNotSeen(t *testing.T) {
	f := newFixture(t)
	r := testRoute("hello")
	r.Pool, r.Private, r.Guarded, r.TokenUID = routecache.PoolOf("team", "closed"), true, true, new(types.UID("u"))
	f.resolver.setIndex("hello", routing.Answer{State: routing.Starting, Namespace: "team", Pool: "closed", Private: true, UID: "u"})
	live := running(r)
	live.Guarded, live.UID = true, "u"
	f.resolver.live["hello"] = live
	if a := f.ask(t, ":authority", "49983-hello.localhost", ":path", "/health", "x-access-token", "of sandboxd"); a.destination == "" {
		t.Errorf("answer %+v", a)
	}
}

// A request that follows an activation may only have a pod claimed if the pool lets it.
func TestFollowersMayClaimWhatTheirPoolAllows(t *testing.T) {
	for _, tt := range []struct {
		pool    string
		headers []string
		want    bool
	}{
		{"closed", append(host("hello"), "x-sandbox-api-key", "key-team"), false},
		{"open", host("hello"), false}, // reached by anybody, claimed by key
		{"keyed", append(host("hello"), "x-sandbox-api-key", "key-team"), true},
	} {
		f := newFixture(t)
		f.resolver.setIndex("hello", routing.Answer{State: routing.Starting, Namespace: "team", Pool: tt.pool})
		f.ask(t, tt.headers...)
		if len(f.act.calls) == 0 || f.act.calls[0].MayClaim != tt.want {
			t.Errorf("pool %s, headers %v: activations %+v, want MayClaim %v", tt.pool, tt.headers, f.act.calls, tt.want)
		}
	}
}

// Live reads say whose valid key was shown: each has a share of them.
func TestLiveReadsSayWhoseTheyAre(t *testing.T) {
	for key, want := range map[string]string{"key-team": "team/red", "nonsense": ""} {
		f := newFixture(t)
		f.ask(t, append(host(generated), "x-sandbox-api-key", key)...)
		if len(f.resolver.callers) != 1 || f.resolver.callers[0] != want {
			t.Errorf("key %s: live reads %v", key, f.resolver.callers)
		}
	}
}

// After an activation the index may lag: the API server is read.
func TestIndexLagsBehindActivation(t *testing.T) {
	f := newFixture(t)
	f.resolver.setIndex("hello", routing.Answer{State: routing.NoPod, Namespace: "default", Pool: "echo"})
	f.act.do = func(context.Context, routing.Request) error {
		f.resolver.live["hello"] = running(testRoute("hello"))
		return nil
	}
	if a := f.ask(t, host("hello")...); a.destination == "" {
		t.Errorf("answer %+v", a)
	}
	if len(f.act.calls) != 1 || f.resolver.reads != 1 {
		t.Errorf("%d activations, %d reads", len(f.act.calls), f.resolver.reads)
	}
}

func TestParkingIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t, withDefaultPool, func(o *Options) { o.Room = &fakeRoom{waiters: 3} })
		proceed := make(chan struct{})
		f.act.do = func(_ context.Context, r routing.Request) error {
			<-proceed
			f.put(t, testRoute(r.ID))
			return nil
		}
		streams := make([]*fakeStream, 3)
		for i := range streams {
			streams[i] = newStream(t.Context(), host(string(rune('a'+i)))...)
			go func() {
				if err := f.Process(streams[i]); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		a := f.ask(t, host("d")...)
		if a.status != http.StatusServiceUnavailable || a.retryAfter != "1" || f.outcomes(outcomeRejected, reasonParkingFull) != 1 {
			t.Errorf("the fourth: %+v", a)
		}
		// A parked request is in no flight: a fence does not wait for it.
		if err := f.cache.WaitFlights(t.Context()); err != nil {
			t.Error(err)
		}
		close(proceed)
		synctest.Wait()
		for _, s := range streams {
			if a := s.answer(t); a.destination == "" {
				t.Errorf("a parked one: %+v", a)
			}
		}
		if a := f.ask(t, host("d")...); a.destination == "" {
			t.Errorf("with room again: %+v", a)
		}
	})
}

func TestClientLeavesWhileParked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t, withDefaultPool)
		f.act.do = func(ctx context.Context, _ routing.Request) error { <-ctx.Done(); return ctx.Err() }
		ctx, cancel := context.WithCancel(t.Context())
		s := newStream(ctx, host("new")...)
		done := make(chan error, 1)
		go func() { done <- f.Process(s) }()
		synctest.Wait()
		cancel()
		if err := <-done; status.Code(err) != codes.Canceled {
			t.Errorf("error %v", err)
		}
		if len(s.sent) != 1 || s.sent[0].GetOverrideMessageTimeout() == nil {
			t.Errorf("answered a client that left: %v", s.sent)
		}
		if f.activity.isParked("new") || f.o.Room.(*fakeRoom).waiters != 1000 || f.outcomes(outcomeCanceled, "") != 1 {
			t.Error("still counted as parked, or not as canceled")
		}
	})
}

func TestMaxWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t, withDefaultPool)
		f.act.do = func(ctx context.Context, _ routing.Request) error { <-ctx.Done(); return ctx.Err() }
		start := time.Now()
		a := f.ask(t, host("new")...)
		if a.status != http.StatusServiceUnavailable || a.retryAfter == "" {
			t.Errorf("answer %+v", a)
		}
		if got := time.Since(start); got != DefaultMaxWait {
			t.Errorf("answered after %v", got)
		}
	})
}

func TestDraining(t *testing.T) {
	f := newFixture(t, withDefaultPool)
	f.put(t, testRoute("hello"))
	f.Drain()
	if a := f.ask(t, host("hello")...); a.destination == "" {
		t.Errorf("a running sandbox: %+v", a)
	}
	if a := f.ask(t, host("new")...); a.status != http.StatusServiceUnavailable || len(f.act.calls) > 0 {
		t.Errorf("a first request: %+v", a)
	}
	if f.Serving() {
		t.Error("SERVING while draining")
	}
}
