// Package load sends requests: Closed with wrk or a generator of its own, Open and Once with
// that generator. Open sends at fixed times and measures latency from when a request was due
// (no coordinated omission). The package knows nothing about sandboxes: a Target has the
// hosts that requests name.
//
// The generator speaks just enough HTTP/1.1 for answers with a Content-Length: on two cores
// a full client would take the CPU time that the server needs.
package load

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Target says where requests go.
type Target struct {
	// Address is host:port of an HTTP/1.1 server without TLS.
	Address string
	// Hosts are named in turn. With Rare, every RareEvery-th request names the next
	// of those instead, from the one with the index RareFrom.
	Hosts     []string
	Rare      []string
	RareEvery int
	RareFrom  int
	// Connections is the number of connections at once.
	Connections int
	// Limit ends a round after this number of requests; 0 is no limit. wrk ignores it.
	Limit int64
}

// Report has the results of a round of load. Latencies that are not known are zero.
type Report struct {
	Requests int64
	// Errors are answers other than 2xx, and connections that broke.
	Errors         int64
	Took           time.Duration
	P50, P99, P999 time.Duration
}

// PerSecond is the rate of good answers.
func (r Report) PerSecond() float64 { return float64(r.Requests) / r.Took.Seconds() }

// Check returns an error if the round is no measurement: no request was answered, or some
// failed.
func (r Report) Check() error {
	if r.Requests == 0 {
		return errors.New("no request was answered")
	}
	if r.Errors > 0 {
		return fmt.Errorf("%d of %d requests failed", r.Errors, r.Requests+r.Errors)
	}
	return nil
}

// Closed keeps each connection busy with one request after the other: by wrk if
// its path is given, else by the generator.
func Closed(ctx context.Context, wrk string, t Target, d time.Duration) (Report, error) {
	if wrk != "" {
		return runWrk(ctx, wrk, t, d)
	}
	return generate(ctx, t, d, 0)
}

// Once sends one request to each host, a few at a time, without a time limit of its own for
// the round.
func Once(ctx context.Context, t Target, patience time.Duration) (Report, error) {
	t.Limit = int64(len(t.Hosts))
	return generate(ctx, t, patience, 0)
}

// Open sends rate requests a second at fixed times, also while answers are late.
func Open(ctx context.Context, t Target, d time.Duration, rate float64) (Report, error) {
	if rate <= 0 {
		return Report{}, fmt.Errorf("rate %v must be positive", rate)
	}
	return generate(ctx, t, d, rate)
}
