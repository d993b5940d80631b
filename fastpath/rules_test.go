package fastpath

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/test/cmodule"
)

// begunContext closes begun at the first question whether it has ended: the wait that
// has it is under way then.
type begunContext struct {
	context.Context
	once  sync.Once
	begun chan struct{}
}

func (c *begunContext) Err() error {
	c.once.Do(func() { close(c.begun) })
	return c.Context.Err()
}

// A wait frees the entries alone that were taken out before it began: a reading that began
// meanwhile may read the others.
func TestWaitFreesWhatWasRemovedBeforeIt(t *testing.T) {
	w := newWorld(t, 100)
	envoy := w.envoy(t, "stall")
	w.put(t, route(generatedID, "10.0.0.5"))
	w.put(t, route("later", "10.0.0.6"))
	envoy.Send(t, cmodule.AppendRequest(nil, request(generatedID, "80")...))
	envoy.Byte(t)
	w.cache.Invalidate(generatedID)
	ctx := &begunContext{Context: t.Context(), begun: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- w.table.Wait(ctx) }()
	<-ctx.begun
	w.cache.Invalidate("later")
	envoy.Send(t, []byte{'g'})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	if n := len(w.table.retired); n != 1 {
		t.Errorf("%d entries are retired after the wait, want the one that was taken out during it", n)
	}
}

// A fence of the route cache is acknowledged only after the readings in Envoy.
func TestFenceOutlastsAReading(t *testing.T) {
	w := newWorld(t, 100)
	envoy := w.envoy(t, "stall")
	r := w.put(t, route(generatedID, "10.0.0.5"))
	envoy.Send(t, cmodule.AppendRequest(nil, request(generatedID, "80")...))
	envoy.Byte(t)
	fence := []routecache.Fence{{Addr: r.Addr, RV: r.PodRV + 1}}
	brief, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := w.cache.Fence(brief, fence); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a fence during a reading: %v", err)
	}
	envoy.Send(t, []byte{'g'})
	if err := w.cache.Fence(t.Context(), fence); err != nil {
		t.Error(err)
	}
}

// A heartbeat that has looked at the lease writes trust before the loss of the lease takes
// it away, or does not write it.
func TestHeartbeatAndLossOfTheLease(t *testing.T) {
	w := newWorld(t, 100)
	w.envoy(t, "run")
	looked, goOn := make(chan struct{}), make(chan struct{})
	w.table.o.Lease = func() time.Duration {
		close(looked)
		<-goOn
		return time.Hour
	}
	var both sync.WaitGroup
	both.Go(w.table.renew)
	<-looked
	lost := make(chan struct{})
	both.Go(func() { defer close(lost); w.table.Distrust(false) })
	select { // it waits for the heartbeat; where it does not, it is done by now
	case <-lost:
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	both.Wait()
	if boot, wall := w.table.control.load(offTrustBoot), w.table.control.load(offTrustWall); boot != 0 || wall != 0 {
		t.Errorf("trusted until %d, %d after the lease was lost", boot, wall)
	}
}
