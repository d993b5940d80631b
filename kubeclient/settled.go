package kubeclient

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlane/sandlane/kubeclient/backoff"
)

const (
	// settleTime bounds how long a refused request waits for an API server that is
	// not ready; an API server reads its rules within seconds of its start.
	settleTime  = 10 * time.Second
	settlePause = 200 * time.Millisecond
	readyTime   = time.Second // for an answer to "are you ready"
)

// RetryUntilAPIServerReady makes the configuration's requests wait for an API server that has just
// started and refuses them only because it has not read its roles and admission
// policies yet: it answers 403 to every account but an administrator's, and says at
// /readyz that it is not ready. A request that was refused is sent again once the
// server is ready, and the second 403 of a ready server is the answer. Nothing that
// was refused has been done, so a write can be sent again as well.
//
// A server that is still not ready after ten seconds, or when the request's context
// ends, has not judged the request either: the answer is 503 then, and not a missing
// right. A real refusal costs two more calls.
func RetryUntilAPIServerReady(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return settled{next} })
}

type settled struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s settled) RoundTrip(r *http.Request) (*http.Response, error) {
	deadline := time.Now().Add(settleTime)
	for ready := false; ; {
		res, err := s.next.RoundTrip(r)
		if err != nil || res.StatusCode != http.StatusForbidden || ready {
			return res, err
		}
		again, ok := repeat(r)
		if !ok {
			return res, nil
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		said := s.ready(r)
		for ; said != http.StatusOK; said = s.ready(r) {
			if time.Now().Before(deadline) && backoff.Sleep(r.Context(), settlePause) {
				continue
			}
			if said == http.StatusForbidden && r.Context().Err() == nil {
				break // an administrator has taken that role away
			}
			return unready(r)
		}
		r, ready = again, true
	}
}

// unready is the answer of an API server that cannot judge requests yet.
func unready(r *http.Request) (*http.Response, error) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: "the API server has started and is not ready yet",
	}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("answering for an API server that is not ready: %w", err)
	}
	return &http.Response{
		StatusCode: http.StatusServiceUnavailable, Status: "503 Service Unavailable", Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

// WrappedRoundTripper lets client-go see the transport beneath.
func (s settled) WrappedRoundTripper() http.RoundTripper { return s.next }

// ready asks the API server that the request goes to, as the request's account, whether it has
// read all that it judges requests by. Every account may ask by a role of Kubernetes
// (system:public-info-viewer), which a server that has just started has not read either; a
// request without an account may not ask everywhere (--anonymous-auth=false).
func (s settled) ready(r *http.Request) (status int) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTime)
	defer cancel()
	at := url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: "/readyz"}
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return 0
	}
	if account := r.Header.Values("Authorization"); len(account) > 0 { // client-go adds a token above this transport
		ask.Header["Authorization"] = account
	}
	res, err := s.next.RoundTrip(ask)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode
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
