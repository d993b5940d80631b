package kubeclient

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sandlane/sandlane/backoff"
)

const (
	// settleTime bounds how long a refused request waits for an API server that is
	// not ready; an API server reads its rules within seconds of its start.
	settleTime  = 10 * time.Second
	settlePause = 200 * time.Millisecond
	readyTime   = time.Second // for an answer to "are you ready"
)

// Settled makes the configuration's requests wait for an API server that has just
// started and refuses them only because it has not read its roles and admission
// policies yet: it answers 403 to every account but an administrator's, and says at
// /readyz that it is not ready. A request that was refused is sent again once the
// server is ready, and the second 403 of a ready server is the answer. Nothing that
// was refused has been done, so a write can be sent again as well.
//
// A real refusal costs two more calls. It waits at most ten seconds, and no longer
// than the request's context.
func Settled(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return settled{next} })
}

type settled struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s settled) RoundTrip(r *http.Request) (*http.Response, error) {
	over := time.Now().Add(settleTime)
	for ready := false; ; {
		res, err := s.next.RoundTrip(r)
		if err != nil || res.StatusCode != http.StatusForbidden || ready || !time.Now().Before(over) {
			return res, err
		}
		again, ok := repeat(r)
		if !ok {
			return res, nil
		}
		for !ready && time.Now().Before(over) {
			if ready = s.ready(r); !ready && !backoff.Sleep(r.Context(), settlePause) {
				return res, nil
			}
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		r = again
	}
}

// WrappedRoundTripper lets client-go see the transport beneath.
func (s settled) WrappedRoundTripper() http.RoundTripper { return s.next }

// ready asks the API server that the request goes to whether it has read all that it
// judges requests by. Any account may ask (--authorization-always-allow-paths).
func (s settled) ready(r *http.Request) bool {
	ctx, cancel := context.WithTimeout(r.Context(), readyTime)
	defer cancel()
	at := url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: "/readyz"}
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return false
	}
	res, err := s.next.RoundTrip(ask)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// repeat returns the request anew, with its body from the beginning; false if the
// body cannot be had again.
func repeat(r *http.Request) (*http.Request, bool) {
	again := r.Clone(r.Context())
	if r.Body == nil || r.Body == http.NoBody {
		return again, true
	}
	if r.GetBody == nil {
		return nil, false
	}
	body, err := r.GetBody()
	again.Body = body
	return again, err == nil
}
