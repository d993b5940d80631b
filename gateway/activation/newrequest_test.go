package activation

import (
	"errors"
	"slices"
	"testing"

	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
)

// OnNewRequest is called for each request for a new sandbox, also if the request fails.
func TestNewRequestsAreReported(t *testing.T) {
	var asked []string
	a := New(Options{
		Schedulers:   func(string, string) (*schedule.PoolScheduler, bool) { return nil, false },
		Cache:        routecache.New(0),
		ClaimUse:     func(string, string) *routecache.ClaimUse { return new(routecache.ClaimUse) },
		OnNewRequest: func(namespace, pool string) { asked = append(asked, namespace+"/"+pool) },
	})
	r := routing.Request{ID: "s", Namespace: "ns", Pool: "none", New: true}
	if err := a.Activate(t.Context(), r); !errors.Is(err, routing.ErrPoolNotFound) {
		t.Errorf("a pool that is gone: %v", err)
	}
	a.Shutdown()
	r.Pool = "pool"
	if err := a.Activate(t.Context(), r); !errors.Is(err, routing.ErrDraining) {
		t.Errorf("a gateway that stops: %v", err)
	}
	r.New, r.MayClaim = false, true
	if err := a.Activate(t.Context(), r); !errors.Is(err, routing.ErrDraining) {
		t.Errorf("a sandbox that exists: %v", err)
	}
	if !slices.Equal(asked, []string{"ns/none", "ns/pool"}) {
		t.Errorf("OnNewRequest was called for %v", asked)
	}
}
