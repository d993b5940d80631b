package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/kubetest"
)

// forbidden is an API server that forbids reads of single objects of one resource.
type forbidden struct{ resource atomic.Value }

// config is an administrator's configuration, but for those reads.
func (f *forbidden) config(t *testing.T) *rest.Config {
	f.resource.Store("")
	cfg := kubetest.Config(t)
	cfg.Wrap(func(base http.RoundTripper) http.RoundTripper { return forbidding{f, base} })
	return cfg
}

type forbidding struct {
	of   *forbidden
	base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (f forbidding) RoundTrip(r *http.Request) (*http.Response, error) {
	parts := strings.Split(r.URL.Path, "/")
	if len(parts) > 1 && r.Method == http.MethodGet && parts[len(parts)-2] == f.of.resource.Load() {
		return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Request: r}, nil
	}
	return f.base.RoundTrip(r)
}

// The controller hears that the freezer has failed only if the freezer has said so, and that
// it does not answer only if it was asked: after the failure a sandbox may be ended.
func TestEnforcePauseSaysWhatTheFreezerSaid(t *testing.T) {
	w := newWorld(t)
	d, api := w.ready(), &forbidden{}
	g := w.gatewayWith(api.config(t))
	n := w.new(newID())
	if _, err := g.create(t, n); err != nil {
		t.Fatal(err)
	}
	if err := g.api.sandboxes.Pause(t.Context(), w.ns, n.ID, true); err != nil {
		t.Fatal(err)
	}
	s := w.sandbox(n.ID)
	order := controlplane.EnforcePause{SandboxID: n.ID, ClaimID: s.Spec.Binding.ClaimID, Freeze: true, Order: s.Spec.PauseOrder}
	told := []error{writes.ErrStale, controlplane.ErrNoFreezer, controlplane.ErrNotDone, controlplane.ErrNotSaved, controlplane.ErrUnanswered}
	try := func(what string, want ...error) {
		t.Helper()
		err := g.own.pauser.EnforcePause(t.Context(), order)
		for _, one := range told {
			if errors.Is(err, one) != slices.Contains(want, one) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		if err == nil {
			t.Errorf("%s: it is done", what)
		}
	}
	for _, resource := range []string{"sandboxes", "pods"} {
		api.resource.Store(resource)
		try("the API server forbids to read " + resource)
	}
	api.resource.Store("")
	for status, want := range map[int]error{
		http.StatusInternalServerError: controlplane.ErrNotDone, http.StatusPreconditionFailed: controlplane.ErrNotDone,
		http.StatusLocked: controlplane.ErrNotDone, http.StatusNotImplemented: controlplane.ErrNoFreezer, hangsUp: controlplane.ErrUnanswered,
	} {
		d.mu.Lock()
		d.freezeStatus = status
		d.mu.Unlock()
		try(fmt.Sprint("the freezer says ", status), want)
	}
}
