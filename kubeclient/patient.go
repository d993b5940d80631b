package kubeclient

import (
	"errors"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sandlane/sandlane/kubeclient/backoff"
)

// The pauses between two tries to connect.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
)

// Patient returns a copy of the configuration for informers. Their own pauses
// double up to a minute while the API server is away, and last that long once
// it is back. Here a read that cannot connect waits for the server
// instead, so that an informer's list or watch is never refused. It waits until
// the request's context ends: do not use it for what has to fail in time. Writes
// fail as they always do.
func Patient(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return patient{next} })
	return c
}

type patient struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p patient) RoundTrip(r *http.Request) (*http.Response, error) {
	for delays := backoff.Doubling(firstPause, lastPause); ; {
		res, err := p.next.RoundTrip(r)
		if err == nil || r.Method != http.MethodGet || !unconnected(err) {
			return res, err
		}
		if !backoff.Sleep(r.Context(), delays.Step()) {
			return nil, err
		}
	}
}

// WrappedRoundTripper lets client-go see the transport beneath.
func (p patient) WrappedRoundTripper() http.RoundTripper { return p.next }

// unconnected reports whether the request was never sent.
func unconnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
