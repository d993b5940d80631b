package controlplane

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandlane/sandlane/test/bubble"
)

// member runs a Membership against a fake API inside a synctest bubble and
// notes what it did.
type member struct {
	*Membership
	log    *eventLog
	cancel context.CancelFunc
	ended  chan error
}

type eventLog struct{ atomic.Pointer[[]string] }

func (l *eventLog) add(s string) {
	for {
		old := l.Load()
		var next []string
		if old != nil {
			next = append(next, *old...)
		}
		next = append(next, s)
		if l.CompareAndSwap(old, &next) {
			return
		}
	}
}

func (l *eventLog) all() []string {
	if p := l.Load(); p != nil {
		return *p
	}
	return nil
}

func newMember(t *testing.T, api MemberLeases, change func(*MembershipOptions)) *member {
	t.Helper()
	g := &member{log: &eventLog{}}
	o := MembershipOptions{
		Leases: api, Name: "gw", Instance: "a", Address: "unix:///gw",
		OnJoin: func(context.Context) error { g.log.add("join"); return nil },
		OnLost: func(context.Context) error { g.log.add("lost"); return nil },
	}
	if change != nil {
		change(&o)
	}
	m, err := NewMembership(o)
	if err != nil {
		t.Fatal(err)
	}
	g.Membership = m
	return g
}

func (g *member) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	g.cancel, g.ended = cancel, make(chan error, 1)
	go func() { g.ended <- g.Start(ctx) }()
	synctest.Wait()
}

func (g *member) stop(t *testing.T) {
	t.Helper()
	g.cancel()
	if err := <-g.ended; err != nil {
		t.Errorf("Start returned %v", err)
	}
}

// after lets time pass and everything settle.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (g *member) wantHeld(t *testing.T, want bool, when string) {
	t.Helper()
	if got := g.Held(); got != want {
		t.Fatalf("%s: Held is %v, want %v", when, got, want)
	}
}

func TestMembershipServesOnlyAfterListing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api, listed := newFakeAPI(), make(chan error)
		g := newMember(t, api, func(o *MembershipOptions) {
			o.OnJoin = func(ctx context.Context) error {
				if api.get("gw") == nil {
					t.Error("listing before the lease was written")
				}
				select {
				case err := <-listed:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
		g.wantHeld(t, false, "before Start")
		api.setAway(true)
		g.start(t)
		g.wantHeld(t, false, "while the API server is away")
		api.setAway(false)
		after(time.Minute)
		if h := holderOf(api.get("gw")); h != "a/1" {
			t.Fatalf("holder is %q", h)
		}
		g.wantHeld(t, false, "while listing")
		first := api.get("gw").Spec.RenewTime.Time
		after(25 * time.Minute)
		if last := api.get("gw").Spec.RenewTime.Time; last.Sub(first) < 24*time.Minute {
			t.Errorf("not renewed while listing: %v then %v", first, last)
		}
		listed <- errors.New("no list")
		after(time.Second)
		g.wantHeld(t, false, "after a failed list")
		listed <- nil
		synctest.Wait()
		g.wantHeld(t, true, "after the list")
		g.stop(t)
	})
}

func TestMembershipRenews(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		g := newMember(t, api, nil)
		g.start(t)
		after(time.Hour)
		if n := len(api.writes()); n != 1+360 {
			t.Errorf("%d writes in an hour, want 1 and 360", n)
		}
		if d := time.Since(api.get("gw").Spec.RenewTime.Time); d > 10*time.Second {
			t.Errorf("last renewed %v ago", d)
		}
		l := api.get("gw")
		if *l.Spec.LeaseDurationSeconds != 600 || l.Labels["sandlane.dev/gateway"] != "gw" || l.Annotations["sandlane.dev/control-plane-address"] != "unix:///gw" {
			t.Errorf("lease says %+v %v %v", l.Spec, l.Labels, l.Annotations)
		}
		g.stop(t)
		g.wantHeld(t, true, "after the context ended, within the lease")
		after(10 * time.Minute)
		g.wantHeld(t, false, "after the lease")
	})
}

func TestMembershipOutlivesTheAPIServerForItsLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		g := newMember(t, api, nil)
		g.start(t)
		api.setAway(true)
		after(9*time.Minute + 50*time.Second)
		g.wantHeld(t, true, "away for less than the lease")
		api.setAway(false)
		after(3 * time.Second)
		g.wantHeld(t, true, "back again")
		if slices.Contains(g.log.all(), "lost") || g.Holder() != "a/1" {
			t.Errorf("lost its lease: %v %s", g.log.all(), g.Holder())
		}
		after(7 * time.Second) // the last renewal is at most 10 s old
		api.setAway(true)
		renewed := api.get("gw").Spec.RenewTime.Time
		after(time.Until(renewed.Add(10*time.Minute)) - time.Millisecond)
		g.wantHeld(t, true, "just before the end")
		after(2 * time.Millisecond)
		g.wantHeld(t, false, "just after the end")
		if got := strings.Join(g.log.all(), " "); got != "join lost" {
			t.Errorf("events: %s", got)
		}
		after(time.Hour)
		api.setAway(false)
		after(11 * time.Second)
		g.wantHeld(t, true, "rejoined")
		if g.Holder() != "a/2" || holderOf(api.get("gw")) != "a/2" {
			t.Errorf("rejoined as %s, lease %s", g.Holder(), holderOf(api.get("gw")))
		}
		g.stop(t)
	})
}

func TestMembershipCountsFromBeforeTheRenewalWasSent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		g := newMember(t, api, nil)
		g.start(t)
		slow := func(verb, _ string) error {
			if verb == "patch" {
				time.Sleep(8 * time.Second)
			}
			return nil
		}
		api.setAfter(slow)
		after(19 * time.Second) // sent at 10 s, answered at 18 s
		api.setAway(true)
		after(10*time.Minute + 10*time.Second - 19*time.Second - time.Millisecond)
		g.wantHeld(t, true, "just before the renewal's time")
		after(2 * time.Millisecond)
		g.wantHeld(t, false, "ten minutes after it was sent")
		g.stop(t)
	})
}

func TestMembershipRejoinsWhenTheRenewalIsAnsweredTooLate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		g := newMember(t, api, func(o *MembershipOptions) { o.LeaseDuration, o.RenewEvery = 20*time.Second, 10*time.Second })
		g.start(t)
		var once atomic.Bool
		// Sent at 10 s, applied, and answered at 25 s, whatever its context says.
		api.setAfter(func(verb, _ string) error {
			if verb == "patch" && once.CompareAndSwap(false, true) {
				time.Sleep(15 * time.Second)
			}
			return nil
		})
		after(20*time.Second + time.Millisecond)
		g.wantHeld(t, false, "past the lease, the renewal unanswered")
		after(6 * time.Second)
		g.wantHeld(t, true, "rejoined")
		if got := strings.Join(g.log.all(), " "); got != "join lost join" || g.Holder() != "a/2" {
			t.Errorf("events %q as %s: a late answer must not revive the lease", got, g.Holder())
		}
		g.stop(t)
	})
}

func TestMembershipDropsEverythingBeforeItRejoins(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		var held bool
		var failures int
		var g *member
		g = newMember(t, api, func(o *MembershipOptions) {
			o.OnLost = func(context.Context) error {
				held = held || g.Held()
				if h := holderOf(api.get("gw")); h != "revoked:a/1" {
					t.Errorf("dropping routes while the lease says %s", h)
				}
				if failures++; failures < 3 {
					return errors.New("a handler is in flight")
				}
				return nil
			}
		})
		g.start(t)
		after(5 * time.Second)
		revoke(t, api, "gw")
		g.wantHeld(t, true, "until the next renewal")
		after(5*time.Second + time.Millisecond)
		g.wantHeld(t, false, "after the renewal was refused")
		after(10 * time.Second)
		g.wantHeld(t, true, "rejoined")
		if held || failures != 3 {
			t.Errorf("held while dropping: %v; OnLost calls: %d, want 3", held, failures)
		}
		if h := holderOf(api.get("gw")); h != "a/2" {
			t.Errorf("rejoined as %s", h)
		}
		g.stop(t)
	})
}

// revoke overwrites the holder as a controller does.
func revoke(t *testing.T, api *fakeAPI, name string) {
	t.Helper()
	d, err := NewDirectory(DirectoryOptions{Leases: api})
	if err != nil {
		t.Fatal(err)
	}
	h, err := ParseHolder(holderOf(api.get(name)))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Revoke(t.Context(), Gateway{Name: name, Holder: h}); err != nil {
		t.Fatal(err)
	}
}

func TestMembershipBacksOffUntilAControllerCalls(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		var lost, joined time.Time
		g := newMember(t, api, func(o *MembershipOptions) {
			o.OnLost = func(context.Context) error { lost = time.Now(); return nil }
			o.OnJoin = func(context.Context) error { joined = time.Now(); return nil }
		})
		g.start(t)
		lossToRejoin := func() time.Duration {
			revoke(t, api, "gw")
			after(13 * time.Second) // 10 s until the renewal fails, 2 s at most to rejoin
			g.wantHeld(t, true, "rejoined")
			return joined.Sub(lost)
		}
		for i, want := range []time.Duration{0, 1, 2, 2, 2} {
			if got := lossToRejoin(); got != want*time.Second {
				t.Errorf("loss %d: rejoined after %v, want %vs", i+1, got, want)
			}
		}
		g.Reached()
		for i, want := range []time.Duration{0, 1} {
			if got := lossToRejoin(); got != want*time.Second {
				t.Errorf("loss %d after a call: rejoined after %v, want %vs", i+1, got, want)
			}
		}
		// A call during the wait ends it.
		revoke(t, api, "gw")
		for range 11 {
			if after(time.Second); !g.Held() {
				break
			}
		}
		g.wantHeld(t, false, "waiting to rejoin")
		g.Reached()
		synctest.Wait()
		g.wantHeld(t, true, "called while waiting")
		g.stop(t)
	})
}

func TestMembershipTakesOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		a := newMember(t, api, nil)
		a.start(t)
		a.stop(t) // killed: its lease stays
		b := newMember(t, api, func(o *MembershipOptions) { o.Instance = "b" })
		b.start(t)
		b.wantHeld(t, true, "the new process")
		if l := api.get("gw"); holderOf(l) != "b/1" || *l.Spec.LeaseTransitions != 1 {
			t.Errorf("lease says %s, %d transitions", holderOf(l), *l.Spec.LeaseTransitions)
		}
		b.stop(t)
	})
}

func TestMembershipResolvesAmbiguousWrites(t *testing.T) {
	for _, verb := range []string{"create", "update"} {
		t.Run(verb, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				api := newFakeAPI()
				if verb == "update" {
					api.put("test", lease("gw", "old/7", 600, time.Now()))
				}
				var once atomic.Bool
				var sent time.Time
				api.setAfter(func(v, _ string) error {
					if v == verb && once.CompareAndSwap(false, true) {
						sent = time.Now()
						return errAway // applied, and the answer is lost
					}
					return nil
				})
				g := newMember(t, api, nil)
				g.start(t)
				after(time.Second)
				g.wantHeld(t, true, "after a lost answer")
				if w := api.writes(); !strings.HasPrefix(w[len(w)-1], "patch gw a/1") {
					t.Errorf("writes %v: the lost write must be renewed, to know when it was", w)
				}
				if renewed := api.get("gw").Spec.RenewTime.Time; !renewed.After(sent) {
					t.Errorf("renewed at %v, the lost write was sent at %v", renewed, sent)
				}
				g.stop(t)
			})
		})
	}
}
