package activation

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// requestForNoStart activates a sandbox of a pool whose state noStart tells, and returns how
// long it took.
func (w *world) requestForNoStart(g *gateway, r routing.Request, noStart func(pool string) string) (took time.Duration, err error) {
	g.o.NoStart = func(_, pool string) string { return noStart(pool) }
	began := time.Now()
	err = g.Activate(w.t.Context(), r)
	return time.Since(began), err
}

// A request to a pool that cannot start pods is told so long before its deadline, and what it
// wrote is nothing.
func TestNoPodCanStart(t *testing.T) {
	w := newWorld(t)
	g := w.gateway(w.c)
	took, err := w.requestForNoStart(g, w.request(kubetest.Name("never"), true, 50*time.Second), func(string) string { return "ErrImagePull" })
	var noStart *routing.NoStartError
	if !errors.As(err, &noStart) || noStart.Reason != "ErrImagePull" || !errors.Is(err, routing.ErrNoCapacity) {
		t.Errorf("%v, want a routing.NoStartError", err)
	}
	if took < noStartPatience || took > 10*time.Second {
		t.Errorf("told after %v", took)
	}
}

// A pool that can start pods again within noStartPatience fails no request, however often that
// comes and goes, and one that gets a pod meanwhile gets its request.
func TestPodsMayStartAgain(t *testing.T) {
	t.Run("comes and goes", func(t *testing.T) {
		w := newWorld(t)
		g := w.gateway(w.c)
		asked := 0 // once a second, by one goroutine
		took, err := w.requestForNoStart(g, w.request(kubetest.Name("again"), true, 12*time.Second), func(string) string {
			if asked++; asked%4 == 0 {
				return ""
			}
			return "ErrImagePull"
		})
		var noStart *routing.NoStartError
		if errors.As(err, &noStart) || !errors.Is(err, routing.ErrNoCapacity) || took < 11*time.Second {
			t.Errorf("after %v: %v, want that no pod was idle until the deadline", took, err)
		}
	})
	t.Run("a pod comes", func(t *testing.T) {
		w := newWorld(t)
		g := w.gateway(w.c)
		var asked atomic.Int32
		done := make(chan error, 1)
		go func() {
			_, err := w.requestForNoStart(g, w.request(kubetest.Name("comes"), true, 50*time.Second), func(string) string {
				asked.Add(1)
				return "ErrImagePull" // the index is behind
			})
			done <- err
		}()
		kubetest.Eventually(t, "the request to wait", func() error {
			if asked.Load() == 0 {
				return errors.New("not asked")
			}
			return nil
		})
		w.idle(1)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A request for a sandbox of an env fails only when no member can start a pod.
func TestNoPodOfAnEnvCanStart(t *testing.T) {
	w := newWorld(t)
	g := w.envGatewayOn(w.c)
	var noStart *routing.NoStartError
	_, err := w.requestForNoStart(g, w.byEnv(kubetest.Name("one"), 8*time.Second), func(pool string) string {
		if pool == "b" {
			return ""
		}
		return "ErrImagePull"
	})
	if errors.As(err, &noStart) {
		t.Errorf("member b may start pods: %v", err)
	}
	_, err = w.requestForNoStart(g, w.byEnv(kubetest.Name("both"), 50*time.Second), func(string) string { return "ErrImagePull" })
	if !errors.As(err, &noStart) {
		t.Errorf("no member can start pods: %v", err)
	}
}
