package e2e

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

// mostOpen is how many requests a gateway of `up` lets one sandbox have open: the
// default of --max-open-per-sandbox.
const mostOpen = 2500

// A sandbox that has as many requests open as one may have is answered with 429,
// others are not, and it is served again when it has fewer.
func TestFullSandbox(t *testing.T) {
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 2)
	const full, other = "full-sandbox", "beside-a-full-one"
	shared.Touch(t, full, ns+"/pool")
	shared.Touch(t, other, ns+"/pool")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	var open sync.WaitGroup
	for range mostOpen {
		open.Go(func() {
			_, _ = shared.Try(ctx, &http.Client{Transport: tr}, stack.Request{ID: full, Path: "/sleep?seconds=120"}) // ends with its context
		})
	}
	answers := func(status int) func() (bool, string) {
		return func() (bool, string) {
			a := shared.Do(t, nil, stack.Request{ID: full})
			return a.Status == status, a.String()
		}
	}
	shared.Eventually(t, 30*time.Second, "429 for the full sandbox", answers(http.StatusTooManyRequests))
	if a := shared.Do(t, nil, stack.Request{ID: other}); a.Echo == nil {
		t.Errorf("another sandbox: %s", a)
	}
	leave()
	open.Wait()
	shared.Eventually(t, 30*time.Second, "an answer of the sandbox that is full no more", answers(http.StatusOK))
}
