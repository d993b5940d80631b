package extproc

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	dataaccesslogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/bubble"
)

func entry(id, claim string, flags *dataaccesslogv3.ResponseFlags) *dataaccesslogv3.AccessLogCommon {
	return &dataaccesslogv3.AccessLogCommon{
		ResponseFlags: flags,
		Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
			MetadataNamespace: {Fields: map[string]*structpb.Value{
				MetadataSandboxID: structpb.NewStringValue(id), metadataClaim: structpb.NewStringValue(claim),
			}},
		}},
	}
}

func TestUpstreamFailureDropsTheRoute(t *testing.T) {
	flags := map[string]*dataaccesslogv3.ResponseFlags{
		"UF": {UpstreamConnectionFailure: true},
		"UC": {UpstreamConnectionTermination: true},
		"UH": {NoHealthyUpstream: true},
	}
	for name, fl := range flags {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			r := testRoute("hello")
			f.put(t, r)
			f.logEntry(entry("hello", "older-claim", fl), time.Now())
			f.logEntry(entry("other", r.ClaimID, fl), time.Now())
			if f.cache.Get("hello") == nil {
				t.Fatal("dropped for another claim")
			}
			f.logEntry(entry("hello", r.ClaimID, fl), time.Now())
			if f.cache.Get("hello") != nil {
				t.Fatal("not dropped")
			}
		})
	}
	f := newFixture(t)
	r := testRoute("hello")
	f.put(t, r)
	f.logEntry(entry("hello", r.ClaimID, &dataaccesslogv3.ResponseFlags{DownstreamConnectionTermination: true}), time.Now())
	f.logEntry(&dataaccesslogv3.AccessLogCommon{ResponseFlags: flags["UF"]}, time.Now()) // without metadata
	if f.cache.Get("hello") == nil {
		t.Error("dropped although the upstream did not fail")
	}
	broken := entry("hello", r.ClaimID, nil)
	broken.Metadata.FilterMetadata[MetadataNamespace].Fields[MetadataBroken] = structpb.NewNumberValue(1)
	if f.logEntry(broken, time.Now()); f.cache.Get("hello") != nil {
		t.Error("not dropped for a request that the pod broke off")
	}
}

// After a failure the next request reads live, whatever the index says.
func TestUpstreamFailureIsResolvedLive(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t)
		r := testRoute("hello")
		f.resolver.setIndex("hello", running(r)) // not aware of the death
		f.resolver.live["hello"] = routing.Answer{State: routing.Ended}
		f.put(t, r)
		fail := entry("hello", r.ClaimID, &dataaccesslogv3.ResponseFlags{UpstreamConnectionFailure: true})
		f.logEntry(fail, time.Now())
		if a := f.ask(t, host("hello")...); a.status != http.StatusBadGateway || f.resolver.reads != 1 {
			t.Fatalf("answer %+v after %d live reads", a, f.resolver.reads)
		}
		// The API server says that it runs: a closed port, no dead pod. Polling
		// it must not use up the live reads.
		f.resolver.live["hello"] = running(r)
		for range 10 {
			f.logEntry(fail, time.Now())
			if a := f.ask(t, host("hello")...); a.destination == "" {
				t.Fatalf("answer %+v", a)
			}
		}
		if f.resolver.reads != 1 {
			t.Errorf("%d live reads within a second", f.resolver.reads)
		}
		time.Sleep(recheckAfter)
		f.logEntry(fail, time.Now())
		f.ask(t, host("hello")...)
		if f.resolver.reads != 2 {
			t.Errorf("%d live reads after a second", f.resolver.reads)
		}
	})
}

// Live reads used up, or the API server away: what the index has still holds, while
// the lease does. A pod that it does not show running is asked for as ever.
func TestSuspectWithoutALiveRead(t *testing.T) {
	limited, away := routing.ErrLimited, errors.New("api server is away")
	for name, tt := range map[string]struct {
		err     error
		index   routing.State
		lost    bool
		routed  bool
		reading func(context.Context) error
	}{
		"limited":                {err: limited, index: routing.Running, routed: true},
		"away":                   {err: away, index: routing.Running, routed: true},
		"does not answer":        {index: routing.Running, routed: true, reading: func(context.Context) error { return context.DeadlineExceeded }},
		"away, no lease":         {err: away, index: routing.Running, lost: true},
		"away, not in the index": {err: away, index: routing.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := newFixture(t)
				r := testRoute("hello")
				if tt.index == routing.Running {
					f.resolver.setIndex("hello", running(r))
				}
				f.put(t, r)
				f.logEntry(entry("hello", r.ClaimID, &dataaccesslogv3.ResponseFlags{UpstreamConnectionFailure: true}), time.Now())
				f.lease.held.Store(!tt.lost)
				f.resolver.liveErr, f.resolver.onRead = tt.err, tt.reading
				a := f.ask(t, host("hello")...)
				if (a.destination != "") != tt.routed || !tt.routed && a.status != http.StatusServiceUnavailable || f.resolver.reads != 1 {
					t.Errorf("answer %+v after %d live reads", a, f.resolver.reads)
				}
			})
		})
	}
}

func TestStreamEndsCountAsUse(t *testing.T) {
	f := newFixture(t)
	now := time.Now()
	p := entry("hello", "claim", nil)
	p.StartTime, p.Duration = timestamppb.New(now.Add(-time.Minute)), durationpb.New(50*time.Second)
	f.logEntry(p, now)
	if got := f.activity.ended["hello/claim"]; !got.Equal(now.Add(-10 * time.Second)) {
		t.Errorf("ended %v ago", now.Sub(got))
	}
	p.Duration = durationpb.New(time.Hour) // Envoy's clock is ahead
	f.logEntry(p, now)
	if got := f.activity.ended["hello/claim"]; !got.Equal(now) {
		t.Errorf("ended %v ahead", got.Sub(now))
	}
	p.StartTime, p.Duration = nil, nil
	f.logEntry(p, now.Add(time.Second))
	if got := f.activity.ended["hello/claim"]; !got.Equal(now.Add(time.Second)) {
		t.Errorf("ended %v without times", got)
	}
	if len(f.activity.uses) > 0 {
		t.Error("a log entry noted a use")
	}
}

func TestSuspectsAreBounded(t *testing.T) {
	s, now := newFailedUpstreams(), time.Now()
	for i := range maxSuspects + 100 {
		s.mark(strconv.Itoa(i), now)
	}
	if s.lru.Len() != maxSuspects {
		t.Errorf("%d failed upstreams", s.lru.Len())
	}
	if s.take("0", now) || !s.take("200", now) || s.take("200", now) {
		t.Error("the oldest is forgotten, and a doubt is taken once")
	}
}

func TestSuspectWithoutIndexEntry(t *testing.T) {
	f := newFixture(t)
	f.failedUpstreams.mark("hello", time.Now())
	f.resolver.liveErr = routing.ErrLimited
	if a := f.ask(t, host("hello")...); a.status != http.StatusServiceUnavailable {
		t.Errorf("answer %+v: unknown is not 'not found' while live reads are limited", a)
	}
	f.resolver.liveErr = nil
	f.resolver.onRead = func(context.Context) error { return context.DeadlineExceeded }
	if a := f.ask(t, host("hello")...); a.status != http.StatusServiceUnavailable {
		t.Errorf("answer %+v", a)
	}
}
