package controlplane

import (
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/bubble"
)

func TestMembershipHeldOnBothClocks(t *testing.T) {
	g := newMember(t, newFakeAPI(), nil)
	at := instant{wall: 1000, mono: 50}
	g.Membership.now = func() instant { return at }
	g.grant.Store(&grant{until: at.add(100)})
	for _, c := range []struct {
		wall, mono int64
		want       bool
	}{{1099, 149, true}, {1100, 60, false}, {1001, 150, false}, {500, 149, true}, {500, 150, false}} {
		at = instant{c.wall, c.mono}
		if got := g.Held(); got != c.want {
			t.Errorf("wall %d, monotonic %d: Held is %v, want %v", c.wall, c.mono, got, c.want)
		}
	}
	at = instant{1000, 50}
	if n := testing.AllocsPerRun(100, func() { g.Held() }); n != 0 {
		t.Errorf("Held allocates %v times", n)
	}
}

func TestMembershipOptionsValidation(t *testing.T) {
	ok := MembershipOptions{Leases: newFakeAPI(), Name: "gw", Address: "unix:///x"}
	if m, err := NewMembership(ok); err != nil || m.o.LeaseDuration != 10*time.Minute || m.o.RenewEvery != 10*time.Second || m.o.Instance == "" {
		t.Errorf("defaults: %+v, %v", m, err)
	}
	for name, change := range map[string]func(*MembershipOptions){
		"no client":   func(o *MembershipOptions) { o.Leases = nil },
		"no name":     func(o *MembershipOptions) { o.Name = "" },
		"no address":  func(o *MembershipOptions) { o.Address = "" },
		"instance":    func(o *MembershipOptions) { o.Instance = "a/b" },
		"short lease": func(o *MembershipOptions) { o.LeaseDuration = 15 * time.Second },
		"negative":    func(o *MembershipOptions) { o.RenewEvery = -1 },
	} {
		o := ok
		change(&o)
		if _, err := NewMembership(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func BenchmarkHeld(b *testing.B) {
	m, err := NewMembership(MembershipOptions{Leases: newFakeAPI(), Name: "gw", Address: "unix:///x"})
	if err != nil {
		b.Fatal(err)
	}
	m.grant.Store(&grant{until: now().add(time.Hour)})
	b.Run("sequential", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !m.Held() {
				b.Fatal("not held")
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if !m.Held() {
					b.Error("not held")
				}
			}
		})
	})
}

func TestMembershipCountsFromBeforeTheLeaseWasCreated(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		api.setAfter(func(verb, _ string) error {
			if verb == "create" {
				time.Sleep(8 * time.Second)
			}
			return nil
		})
		g := newMember(t, api, nil)
		g.start(t)
		after(9 * time.Second)
		g.wantHeld(t, true, "created")
		api.setAway(true)
		after(10*time.Minute - 9*time.Second - time.Millisecond)
		g.wantHeld(t, true, "just before the end")
		after(2 * time.Millisecond)
		g.wantHeld(t, false, "ten minutes after the create was sent")
		g.stop(t)
	})
}
