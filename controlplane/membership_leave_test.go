package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/bubble"
)

func TestMembershipLeaves(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		var g *member
		g = newMember(t, api, func(o *MembershipOptions) {
			o.OnLost = func(context.Context) error {
				g.log.add(fmt.Sprintf("lost held=%v lease=%v", g.Held(), api.get("gw") != nil))
				return nil
			}
		})
		g.start(t)
		after(time.Minute)
		if err := g.Leave(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		g.wantHeld(t, false, "after Leave")
		if got := strings.Join(g.log.all(), ", "); got != "join, lost held=false lease=true" {
			t.Errorf("events: %s", got)
		}
		w := api.writes()
		if got := strings.Join(w[len(w)-2:], ", "); got != "patch gw left:a/1, delete gw left:a/1" {
			t.Errorf("last writes: %s", got)
		}
		if err := <-g.ended; err != nil {
			t.Errorf("Start returned %v", err)
		}
		if err := g.Leave(t.Context(), true); err != nil {
			t.Errorf("leaving again: %v", err)
		}
		if err := g.Start(t.Context()); err == nil {
			t.Error("Start after Leave succeeded")
		}
	})
}

func TestMembershipLeavesARevokedLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		g := newMember(t, api, nil)
		g.start(t)
		revoke(t, api, "gw")
		if err := g.Leave(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if api.get("gw") != nil {
			t.Error("the lease is still there")
		}
	})
}

func TestMembershipLeavesAnothersLeaseAlone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		g := newMember(t, api, nil)
		g.start(t)
		api.mu.Lock()
		api.put("test", lease("gw", "b/1", 600, time.Now()))
		api.mu.Unlock()
		if err := g.Leave(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if l := api.get("gw"); l == nil || holderOf(l) != "b/1" {
			t.Errorf("lease is %v", l)
		}
	})
}

func TestMembershipLeaveGivesUpWithItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		g := newMember(t, api, nil)
		g.start(t)
		api.setAway(true)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := g.Leave(ctx, true); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Leave returned %v", err)
		}
		g.wantHeld(t, false, "after Leave")
	})
}

// A gateway that leaves an Envoy with streams behind is asked what is in use until its
// lease is over; its next process is asked instead.
func TestAbandonedLeaseCountsItsTime(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulation) {
		g := s.run("g1", "a")
		if err := g.Abandon(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.wantHeld(t, false, "after Abandon")
		if got := strings.Join(g.log.all(), ", "); got != "join, lost" {
			t.Errorf("events: %s", got)
		}
		g.cancel = nil
		g.kill()
		s.unanswered("g1", "nobody can say what its Envoy has open")
		s.wantUnanswered(s.fence(7), "g1", "a fence")
		s.run("g1", "b")
		s.unanswered("", "its next process")
		s.wantUnanswered(s.fence(7), "", "a fence, with its next process")
	})
}
