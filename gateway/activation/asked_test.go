package activation

import (
	"errors"
	"slices"
	"testing"

	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/routecache"
)

// Each request for a new sandbox is told of, whatever becomes of it.
func TestCreatesAreToldOf(t *testing.T) {
	var asked []string
	a := New(Options{
		Schedulers: func(string, string) (*schedule.PoolScheduler, bool) { return nil, false },
		Cache:      routecache.New(0),
		Stamp:      func(string, string) *routecache.Stamp { return new(routecache.Stamp) },
		Asked:      func(namespace, pool string) { asked = append(asked, namespace+"/"+pool) },
	})
	r := Request{ID: "s", Namespace: "ns", Pool: "none", New: true}
	if err := a.Activate(t.Context(), r); !errors.Is(err, ErrPoolNotFound) {
		t.Errorf("a pool that is gone: %v", err)
	}
	a.Shutdown()
	r.Pool = "pool"
	if err := a.Activate(t.Context(), r); !errors.Is(err, ErrShutdown) {
		t.Errorf("a gateway that stops: %v", err)
	}
	r.New, r.MayClaim = false, true
	if err := a.Activate(t.Context(), r); !errors.Is(err, ErrShutdown) {
		t.Errorf("a sandbox that exists: %v", err)
	}
	if !slices.Equal(asked, []string{"ns/none", "ns/pool"}) {
		t.Errorf("told of %v", asked)
	}
}
