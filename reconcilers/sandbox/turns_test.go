package sandbox

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/sandlane/sandlane/controlplane"
)

// Orders have their turn in the order in which they came, but for those without room, which
// keep no other waiting.
func TestTurns(t *testing.T) {
	var all turns
	order := func(name string, saves, silent bool) *freezerOrder {
		o := &freezerOrder{of: controlplane.EnforcePause{SandboxID: name, Saves: saves}}
		if silent {
			o.unknown.tries = 1
		}
		return o
	}
	for _, o := range []*freezerOrder{order("save", true, false), order("both", true, true), order("silent", false, true), order("plain", false, false), order("save2", true, false)} {
		all.push(o)
	}
	for i, c := range []struct {
		full int
		want string
	}{{boundSaves | boundSilent, "plain"}, {boundSaves | boundSilent, ""}, {boundSaves, "silent"}, {boundSaves, ""}, {0, "save"}, {boundSilent, "save2"}, {0, "both"}, {0, ""}} {
		got := ""
		if o := all.pop(c.full); o != nil {
			got = o.of.SandboxID
		}
		if got != c.want {
			t.Errorf("%d: it is the turn of %q, want %q", i, got, c.want)
		}
	}
}

type countingEnforcer struct{ asked atomic.Int32 }

func (q *countingEnforcer) EnforcePause(context.Context, controlplane.EnforcePause) error {
	q.asked.Add(1)
	return nil
}

// Many sandboxes that hibernate at once, for which there is no room, do not make each try's end
// walk past all of them: with one queue that took 19 s for as many.
func TestManyHibernationsAtOnce(t *testing.T) {
	const many = 10_000
	q := &countingEnforcer{}
	x := newFreezerOrders(clock.RealClock{}, q)
	x.mu.Lock()
	x.saving = maxSaves // no room until all are there
	for i := range many {
		o := &freezerOrder{of: controlplane.EnforcePause{SandboxID: fmt.Sprint(i), Saves: true}, begun: true}
		x.open[o.of.SandboxID] = o
		x.queue.push(o)
	}
	x.saving = 0
	began := time.Now()
	x.next()
	x.mu.Unlock()
	x.tries.Wait()
	if took := time.Since(began); q.asked.Load() != many || took > 5*time.Second {
		t.Errorf("%d were asked, in %v", q.asked.Load(), took)
	}
}
