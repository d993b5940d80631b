package gateway

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sandlane/sandlane/test/kubetest"
)

// apiCalls notes what a gateway asks the API server for about sandboxes, pods and
// checkpoints, apart from what its caches list and watch.
type apiCalls struct {
	mu  sync.Mutex
	all []string // guarded by mu; such as "PATCH sandboxes"
}

// config is an administrator's configuration whose requests are noted.
func (c *apiCalls) config(t *testing.T) *rest.Config {
	cfg := kubetest.Config(t)
	cfg.Wrap(func(base http.RoundTripper) http.RoundTripper { return noting{c, base} })
	return cfg
}

// of returns what was asked for while f ran.
func (c *apiCalls) of(f func()) []string {
	c.mu.Lock()
	c.all = nil
	c.mu.Unlock()
	f()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

type noting struct {
	calls *apiCalls
	base  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (n noting) RoundTrip(r *http.Request) (*http.Response, error) {
	parts := strings.Split(r.URL.Path, "/")
	for i, part := range parts {
		object := len(parts) > i+1 || r.Method != http.MethodGet
		if slices.Contains([]string{"sandboxes", "pods", "checkpoints"}, part) && object {
			n.calls.mu.Lock()
			n.calls.all = append(n.calls.all, r.Method+" "+part)
			n.calls.mu.Unlock()
			break
		}
	}
	return n.base.RoundTrip(r)
}

// What a pause and a resume ask the API server for, one after the other, is what they
// cost: each read is there because a write or an order to the pod relies on it.
func TestAPICallsOfAPause(t *testing.T) {
	var c apiCalls
	w := newWorld(t)
	w.ready()
	g := w.gatewayWith(c.config(t))
	n := w.new(newID())
	if _, err := g.create(t, n); err != nil {
		t.Fatal(err)
	}
	x, ctx := g.api.sandboxes, t.Context()
	for _, step := range []struct {
		what string
		do   func() error
		want []string
	}{
		{
			"a pause", func() error { return x.Pause(ctx, w.ns, n.ID, true) },
			// The sandbox; its pod, for the question whether it can be frozen; the pause; its
			// pod anew, for the order that freezes it.
			[]string{"GET sandboxes", "GET pods", "PATCH sandboxes", "GET pods"},
		},
		{
			"a resume", func() error { _, _, err := x.Resume(ctx, w.ns, n.ID, 10*time.Minute); return err },
			[]string{"GET sandboxes", "PATCH sandboxes", "GET pods"},
		},
		{
			"a pause of what runs again", func() error { return x.Pause(ctx, w.ns, n.ID, true) },
			[]string{"GET sandboxes", "GET pods", "PATCH sandboxes", "GET pods"},
		},
		{
			"a pause of what is paused", func() error { _ = x.Pause(ctx, w.ns, n.ID, true); return nil },
			[]string{"GET sandboxes"},
		},
	} {
		var err error
		got := c.of(func() { err = step.do() })
		// The watch may show the write while the pod is read for the order, which is then read
		// once more.
		for n := len(got); n > 1 && got[n-1] == "GET pods" && got[n-2] == "GET pods"; n = len(got) {
			got = got[:n-1]
		}
		if err != nil || !slices.Equal(got, step.want) {
			t.Errorf("%s: %v, with %q, want %q", step.what, err, got, step.want)
		}
	}
}
