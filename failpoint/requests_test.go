//go:build failpoints

package failpoint

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandlane/sandlane/test/bubble"
)

// A request waits while the point holds; one that is given up before it was sent
// never is, and of one that was under way the answer is lost.
func TestRequests(t *testing.T) {
	set := arm(t)
	bubble.Test(t, func(t *testing.T) {
		sent := 0
		answer := make(chan struct{})
		rt := Requests(point)(transport(func(*http.Request) (*http.Response, error) {
			sent++
			<-answer
			return &http.Response{Body: http.NoBody}, nil
		}))
		send := func(timeout time.Duration) <-chan error {
			out := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://a/", nil)
				if err == nil {
					var res *http.Response
					if res, err = rt.RoundTrip(req); err == nil {
						err = res.Body.Close()
					}
				}
				out <- err
			}()
			synctest.Wait()
			return out
		}
		under := send(time.Minute)
		set("hold")
		before, patient := send(time.Second), send(time.Hour)
		if err := <-before; !errors.Is(err, context.DeadlineExceeded) || sent != 1 {
			t.Fatalf("while held: %v, %d sent, want only the one that was under way", err, sent)
		}
		close(answer)
		if err := <-under; !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the answer of one that was under way: %v", err)
		}
		set("")
		if err := <-patient; err != nil || sent != 2 {
			t.Fatalf("after the hold: %v, %d sent", err, sent)
		}
	})
}
