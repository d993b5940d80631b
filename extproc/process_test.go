package extproc

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/bubble"
)

func TestHit(t *testing.T) {
	f := newFixture(t)
	r := testRoute("hello")
	f.put(t, r)
	before := time.Now().UnixNano()
	a := f.ask(t, host("hello")...)
	if a.destination != "198.18.0.7:8000" || a.port != 8000 || a.claim != r.ClaimID || a.waited || a.path != "" || a.final {
		t.Errorf("answer %+v", a)
	}
	if got := f.activity.ClaimUse("hello", r.ClaimID).Load(); got < before {
		t.Error("the hit was not noted")
	}
	if f.resolver.lookups > 0 {
		t.Error("a hit was resolved")
	}
	if got := testutil.ToFloat64(f.Server.metrics.hits); got != 1 {
		t.Errorf("hits %v", got)
	}
	if got := testutil.ToFloat64(f.Server.metrics.inFlight); got != 0 {
		t.Errorf("in flight %v", got)
	}
}

func TestHitIPv6(t *testing.T) {
	f := newFixture(t)
	r := testRoute("six")
	r.Addr = netip.MustParseAddr("fd00::7")
	f.put(t, r)
	if a := f.ask(t, host("six")...); a.destination != "[fd00::7]:8000" {
		t.Errorf("destination %q", a.destination)
	}
}

func TestPathFormIsRewritten(t *testing.T) {
	f := newFixture(t)
	f.put(t, testRoute("hello"))
	for path, want := range map[string]string{
		"/sandboxes/hello/8000":           "/",
		"/sandboxes/hello/8000/a%2fb?c=d": "/a%2fb?c=d",
	} {
		a := f.ask(t, ":authority", "localhost", ":path", path)
		if a.destination == "" || a.path != want {
			t.Errorf("%s: %+v, want path %q", path, a, want)
		}
	}
}

// Envoy sends raw_value by default, value if told to.
func TestPlainHeaderValues(t *testing.T) {
	f := newFixture(t)
	f.put(t, testRoute("hello"))
	s := newStream(t.Context(), host("hello")...)
	for _, h := range s.req.GetRequestHeaders().GetHeaders().GetHeaders() {
		h.Value, h.RawValue = string(h.RawValue), nil
	}
	if err := f.Process(s); err != nil {
		t.Fatal(err)
	}
	if a := s.answer(t); a.destination == "" {
		t.Errorf("answer %+v", a)
	}
}

func TestForwardedHeadersAreTheOnesRead(t *testing.T) {
	var h Headers
	seen := map[*Field]string{}
	for _, name := range ForwardedHeaders() {
		f := h.field(name)
		if f == nil {
			t.Errorf("%s is forwarded but not read", name)
		}
		if other, ok := seen[f]; ok {
			t.Errorf("%s and %s are one field", name, other)
		}
		seen[f] = name
	}
	if len(seen) != 21 {
		t.Errorf("%d headers forwarded", len(seen))
	}
	if h.field("x-envoy-original-dst-host") != nil {
		t.Error("an internal header is read")
	}
}

func TestNoTargetShowsTheForms(t *testing.T) {
	f := newFixture(t)
	a := f.ask(t, ":authority", "localhost", ":path", "/")
	if a.status != http.StatusNotFound || len(a.body.Forms) != 3 || !strings.Contains(a.raw, "<port>-<ID>.<domain>") {
		t.Errorf("answer %+v", a)
	}
}

func TestBadTargetIs400(t *testing.T) {
	f := newFixture(t)
	for _, h := range [][]string{
		{":authority", "nonsense", ":path", "/"},
		named("A"),
		named("a", "x-sandbox-id", "a"),
		{":authority", "localhost", ":path", "/", "x-sandbox-id", "a"},
		named("a", "e2b-sandbox-id", "b", "e2b-sandbox-port", "8000"),
		named("a", "x-sandbox-namespace", "default"),
		{},
	} {
		if a := f.ask(t, h...); a.status != http.StatusBadRequest {
			t.Errorf("%v: %+v", h, a)
		}
	}
	if f.resolver.lookups > 0 {
		t.Error("a malformed target was looked up")
	}
	if a := f.ask(t, named("a", "x-sandbox-namespace", "default")...); a.body.Code != 400 || a.body.Message != errNamespace.msg {
		t.Errorf("a namespace: %+v", a)
	}
}

func TestMessagesThatAreNoRequest(t *testing.T) {
	f := newFixture(t)
	tests := map[string]*extprocv3.ProcessingRequest{
		"closed": nil,
		"empty":  {},
		"body":   {Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{}}},
		"response headers": {Request: &extprocv3.ProcessingRequest_ResponseHeaders{
			ResponseHeaders: &extprocv3.HttpHeaders{}}},
	}
	for name, req := range tests {
		s := newStream(t.Context())
		s.req = req
		if err := f.Process(s); status.Code(err) != codes.InvalidArgument || len(s.sent) > 0 {
			t.Errorf("%s: %v, %d answers", name, err, len(s.sent))
		}
	}
}

func TestPanicFailsClosed(t *testing.T) {
	f := newFixture(t)
	f.resolver.onRead = func(context.Context) error { panic("boom") }
	s := newStream(t.Context(), host("hello")...)
	if err := f.Process(s); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "boom") {
		t.Errorf("error %v", err)
	}
	if got := testutil.ToFloat64(f.Server.metrics.panics); got != 1 {
		t.Errorf("panics %v", got)
	}
	if got := testutil.ToFloat64(f.Server.metrics.inFlight); got != 0 {
		t.Errorf("in flight %v", got)
	}
	// The flight must have been left even so.
	if err := f.cache.WaitFlights(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPanicInAFlightLeavesIt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(t, testRoute("hello"))
		s := newStream(t.Context(), host("hello")...)
		s.onSend = func(*extprocv3.ProcessingResponse) error { panic("boom") }
		if err := f.Process(s); status.Code(err) != codes.Internal {
			t.Errorf("error %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := f.cache.WaitFlights(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestBrokenStream(t *testing.T) {
	f := newFixture(t)
	f.put(t, testRoute("hello"))
	broken := status.Error(codes.Unavailable, "broken")
	s := newStream(t.Context(), host("hello")...)
	s.onSend = func(*extprocv3.ProcessingResponse) error { return broken }
	if err := f.Process(s); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if len(s.sent) != 1 {
		t.Errorf("%d Sends on a broken stream", len(s.sent))
	}
}

// Without a lease nothing is answered with a route, whatever is cached, and no
// activation is begun.
func TestNoLease(t *testing.T) {
	f := newFixture(t, withDefaultPool)
	f.put(t, testRoute("hello"))
	f.lease.held.Store(false)
	for _, h := range [][]string{host("hello"), host("new"), {":authority", "localhost", ":path", "/"}} {
		a := f.ask(t, h...)
		if a.status != http.StatusServiceUnavailable || a.retryAfter != "1" {
			t.Errorf("%v: %+v", h, a)
		}
	}
	if len(f.act.calls) > 0 {
		t.Error("activated without a lease")
	}
	if f.Serving() {
		t.Error("SERVING without a lease")
	}
	f.lease.held.Store(true)
	if a := f.ask(t, host("hello")...); a.destination == "" {
		t.Errorf("after rejoining: %+v", a)
	}
}

// The lease is looked at after the route was taken: one lost while a request
// was parked must count.
func TestLeaseLostWhileParked(t *testing.T) {
	f := newFixture(t, withDefaultPool)
	f.act.do = func(context.Context, routing.Request) error {
		f.put(t, testRoute("new"))
		f.lease.held.Store(false)
		return nil
	}
	if a := f.ask(t, host("new")...); a.status != http.StatusServiceUnavailable || a.destination != "" {
		t.Errorf("answer %+v", a)
	}
}

// A fence is acknowledged only when a handler that has taken a route has sent
// its answer.
func TestFenceWaitsForAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t)
		r := testRoute("hello")
		f.put(t, r)
		proceed := make(chan struct{})
		s := newStream(t.Context(), host("hello")...)
		s.onSend = func(*extprocv3.ProcessingResponse) error { <-proceed; return nil }
		answered := make(chan error, 1)
		go func() { answered <- f.Process(s) }()
		synctest.Wait() // it is in Send now

		acked := make(chan error, 1)
		go func() { acked <- f.cache.Fence(t.Context(), []routecache.Fence{{Addr: r.Addr, RV: r.PodRV + 1}}) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case <-acked:
			t.Fatal("acknowledged while an answer with the old route was under way")
		default:
		}
		close(proceed)
		if err := <-answered; err != nil {
			t.Error(err)
		}
		if err := <-acked; err != nil {
			t.Error(err)
		}
		if a := f.ask(t, host("hello")...); a.destination != "" {
			t.Errorf("routed after the fence: %+v", a)
		}
	})
}
