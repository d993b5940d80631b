package extproc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	dataaccesslogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sandlane/sandlane/routing"
)

// errored is Envoy's record of an error.
func errored(id, details string, md *structpb.Struct) *dataaccesslogv3.HTTPAccessLogEntry {
	return &dataaccesslogv3.HTTPAccessLogEntry{
		CommonProperties: &dataaccesslogv3.AccessLogCommon{
			CustomTags: map[string]string{HeaderRequestID: id},
			Metadata:   &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{MetadataNamespace: md}},
		},
		Response: &dataaccesslogv3.HTTPResponseProperties{ResponseCode: wrapperspb.UInt32(503), ResponseCodeDetails: details},
	}
}

// An error leaves one line, by which its ID is found, with what failed here; what a pod or
// the REST API answered leaves none, whatever header it has.
func TestErrorsAreLogged(t *testing.T) {
	var log bytes.Buffer
	f := newFixture(t)
	f.o.Log = slog.New(slog.NewJSONHandler(&log, nil))
	rejected := func(err error) *structpb.Struct {
		r := rejectionOf(err)
		r.sandboxID, r.cause = "hello", err
		return immediateAnswer(r, false).GetDynamicMetadata().GetFields()[MetadataNamespace].GetStructValue()
	}
	left := func(e *dataaccesslogv3.HTTPAccessLogEntry) *dataaccesslogv3.HTTPAccessLogEntry {
		e.Response.ResponseCode = wrapperspb.UInt32(200)
		return e
	}
	routed := entry("hello", "claim", nil).GetMetadata().GetFilterMetadata()[MetadataNamespace]
	for name, tc := range map[string]struct {
		entry *dataaccesslogv3.HTTPAccessLogEntry
		want  string // request, reason, sandbox, err
	}{
		"our answer":          {errored("a", "sandlane_not_found", rejected(nil)), "a not_found hello "},
		"our failure":         {errored("b", "sandlane_internal", rejected(errors.New("no \xff API server"))), "b internal hello no ? API server"},
		"a closed port":       {errored("c", "upstream_reset_before_response_started{remote}", routed), "c upstream_reset_before_response_started{remote} hello "},
		"Envoy alone":         {errored("d", "overload", nil), "d overload  "},
		"the pod's":           {errored("e", "via_upstream", routed), ""},
		"the pod's, cut off":  {errored("f", "upstream_reset_after_response_started{reset}", routed), ""},
		"the pod's, left":     {left(errored("g", "downstream_remote_disconnect", routed)), ""},
		"an answer, no error": {errored("", "sandlane_not_found", routed), ""},
	} {
		log.Reset()
		f.logRejection(tc.entry)
		var line struct{ Request, Reason, Sandbox, Err string }
		if log.Len() > 0 {
			if err := json.Unmarshal(log.Bytes(), &line); err != nil {
				t.Errorf("%s: %v: %s", name, err, log.String())
			}
		}
		got := ""
		if log.Len() > 0 {
			got = strings.Join([]string{line.Request, line.Reason, line.Sandbox, line.Err}, " ")
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// What an operator has to act on has its cause in the log.
func TestErrorsHaveTheirCause(t *testing.T) {
	for reason, err := range map[string]error{
		reasonNoCapacity: routing.ErrNoCapacity, reasonDeadline: context.DeadlineExceeded, reasonInternal: routing.ErrUnavailable,
		reasonNotPermitted: routing.ErrNotPermitted, reasonNotRestorable: routing.ErrNotRestorable,
	} {
		f := newFixture(t, withDefaultPool)
		f.act.do = func(context.Context, routing.Request) error { return fmt.Errorf("claims took too long: %w", err) }
		if a := f.ask(t, host("hello")...); f.outcomes(outcomeRejected, reason) != 1 || !strings.Contains(a.cause, "claims took too long") {
			t.Errorf("%s: %+v", reason, a)
		}
	}
}

// What clients cause in numbers takes no line from other errors.
func TestLinesOfErrorsAreLimitedByReason(t *testing.T) {
	var log bytes.Buffer
	f := newFixture(t)
	f.o.Log = slog.New(slog.NewJSONHandler(&log, nil))
	for range 10_000 {
		f.logRejection(errored("scan", "sandlane_not_found", nil))
		f.logRejection(errored("closed", "upstream_reset", nil))
	}
	f.logRejection(errored("mine", "sandlane_internal", nil))
	if n := strings.Count(log.String(), "\n"); n > 1000 || !strings.Contains(log.String(), `"mine"`) {
		t.Errorf("%d lines, that of the other error among them: %t", n, strings.Contains(log.String(), `"mine"`))
	}
}
