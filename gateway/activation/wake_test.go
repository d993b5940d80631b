package activation

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routing"
)

// A request with a Resume wakes that sandbox first: once it is to be resolved again, or cannot be
// resumed, there is no activation. One without a Resume wakes none.
func TestWakeBeforeTheActivation(t *testing.T) {
	away := errors.New("away")
	for name, tc := range map[string]struct {
		uid         types.UID
		wake, wants error
		woken       int
	}{
		"changed meanwhile": {"u", writes.ErrStale, nil, 1},
		"cannot be resumed": {"u", away, away, 1},
		"awake by now":      {"u", nil, routing.ErrDraining, 1},
		"no resume":         {"", nil, routing.ErrDraining, 0},
	} {
		t.Run(name, func(t *testing.T) {
			woken := 0
			a := New(Options{Wake: func(_ context.Context, id string, uid types.UID) (routing.Resume, error) {
				if woken++; id != "s" || uid != tc.uid {
					t.Errorf("woke %s of the UID %s", id, uid)
				}
				return routing.Resume{}, tc.wake
			}})
			a.Shutdown() // an activation is refused
			err := a.Activate(t.Context(), routing.Request{ID: "s", Resume: routing.Resume{UID: tc.uid}})
			if !errors.Is(err, tc.wants) || (err == nil) != (tc.wants == nil) || woken != tc.woken {
				t.Errorf("%v after %d wakes, want %v after %d", err, woken, tc.wants, tc.woken)
			}
		})
	}
}
