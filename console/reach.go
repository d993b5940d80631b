package console

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// reach remembers whether the API server answers.
type reach struct {
	mu      sync.Mutex
	since   time.Time // zero: it answers
	why     string
	changed func()
}

// wrap has each request of the configuration noted.
func (r *reach) wrap(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return noted{next, r} })
}

type noted struct {
	next http.RoundTripper
	to   *reach
}

// RoundTrip implements http.RoundTripper. A request that its caller gave up says nothing.
func (n noted) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := n.next.RoundTrip(r)
	switch {
	case err == nil:
		n.to.note(standsIn(resp))
	case r.Context().Err() == nil:
		n.to.note(err)
	}
	return resp, err
}

// standsIn is an error if a load balancer answers for an API server that is away.
func standsIn(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return errors.New("the answer is " + resp.Status)
	}
	return nil
}

// WrappedRoundTripper lets client-go see the transport beneath.
func (n noted) WrappedRoundTripper() http.RoundTripper { return n.next }

func (r *reach) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil && !r.since.IsZero():
		r.since, r.why = time.Time{}, ""
	case err != nil && r.since.IsZero():
		r.since, r.why = time.Now(), err.Error()
	default:
		return
	}
	r.changed()
}

// away says since when the API server does not answer, and why; zero if it does.
func (r *reach) away() (since time.Time, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since, r.why
}
