//go:build failpoints

package failpoint

import (
	"context"
	"net/http"
	"time"
)

// Requests returns a wrapper for the transport of an API client. While the
// point's file says hold, no request leaves and no answer arrives, as when the
// network drops all: a request waits before it is sent, and the answer of one
// that was under way waits, until the file is gone or the caller gives up. So
// what was given up may have been done. What a watch brings that has begun is
// not held: that is Watches.
func Requests(point string) func(http.RoundTripper) http.RoundTripper {
	if folder == "" {
		return nil
	}
	return func(next http.RoundTripper) http.RoundTripper { return &requests{next, point} }
}

type requests struct {
	next  http.RoundTripper
	point string
}

// RoundTrip implements http.RoundTripper.
func (q *requests) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := q.wait(r.Context()); err != nil {
		return nil, err
	}
	res, err := q.next.RoundTrip(r)
	if lost := q.wait(r.Context()); lost != nil {
		if err == nil {
			_ = res.Body.Close()
		}
		return nil, lost
	}
	return res, err
}

// WrappedRoundTripper lets client-go look through the wrapper.
func (q *requests) WrappedRoundTripper() http.RoundTripper { return q.next }

func (q *requests) wait(ctx context.Context) error {
	if !held(path(q.point)) {
		return nil
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for held(path(q.point)) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}
