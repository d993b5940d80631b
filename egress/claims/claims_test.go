package claims

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandlane/sandlane/egress/names"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/test/bubble"
)

var addr = netip.MustParseAddr("127.0.0.1")

func claim(t *testing.T, id string, allow ...string) *Claim {
	t.Helper()
	p, err := names.NewPolicy(names.Rules{DenyAll: true, AllowNames: allow, Headers: map[string]map[string]string{"ruled.com": {"X-A": "v"}}})
	if err != nil {
		t.Fatal(err)
	}
	return &Claim{Namespace: "team", SandboxID: "s-" + id, ClaimID: id, Policy: p}
}

// table returns a table whose barrier passes at once, and its lease.
func table() (*Table, *atomic.Bool) {
	var lost atomic.Bool
	return NewTable(Options{
		Held: func() bool { return !lost.Load() }, Log: slog.New(slog.DiscardHandler),
		Barrier: func(context.Context) error { return nil },
	}), &lost
}

// use is a connection of the claim that the address has; closed counts its closes.
func use(t *testing.T, tab *Table, closed *int) *Use {
	t.Helper()
	u, err := tab.Arrive(addr).Wait(t.Context(), func() { *closed++ })
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func unknown(t *testing.T, tab *Table, what string) {
	t.Helper()
	if u, err := tab.Arrive(addr).Wait(t.Context(), func() {}); !errors.Is(err, ErrUnknown) {
		t.Errorf("%s: %+v, %v", what, u, err)
	}
}

// A connection of an idle pod waits for the claim; of an unknown address it does not.
func TestWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tab, _ := table()
		begin := time.Now()
		unknown(t, tab, "no pod")
		if took := time.Since(begin); took != 0 {
			t.Errorf("an unknown address is waited for: %v", took)
		}
		tab.See(Pod{UID: "p", Addr: addr, RV: 1})
		synctest.Wait()
		unknown(t, tab, "no claim")
		if took := time.Since(begin); took != waitForClaim {
			t.Errorf("waited for the claim for %v", took)
		}
		go func() {
			time.Sleep(waitForClaim / 2)
			tab.See(Pod{UID: "p", Addr: addr, RV: 2, Claim: claim(t, "a")})
		}()
		closed := 0
		if u := use(t, tab, &closed); u.Claim().ClaimID != "a" {
			t.Errorf("%+v", u.Claim())
		}
	})
}

// A fence ends what is older, waits until it is served no more, and refuses late news of it.
func TestFence(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tab, _ := table()
		a := Pod{UID: "p", Addr: addr, RV: 5, Claim: claim(t, "a", "*")}
		tab.See(a)
		synctest.Wait()
		closed := 0
		u := use(t, tab, &closed)
		waiting := tab.Arrive(addr)
		fences := []routecache.Fence{{Addr: addr, RV: 6}}
		done := make(chan error, 1)
		go func() { done <- tab.Fence(t.Context(), fences) }()
		synctest.Wait()
		if closed != 1 || u.Claim() != nil || u.Judge("x.com").Allowed {
			t.Errorf("after the fence: closed %d times, claim %+v", closed, u.Claim())
		}
		if len(done) != 0 {
			t.Error("acknowledged while the claim's connection is served")
		}
		if _, err := waiting.Wait(t.Context(), func() {}); !errors.Is(err, ErrUnknown) {
			t.Errorf("a connection that was accepted before the fence: %v", err)
		}
		tab.See(a)
		synctest.Wait()
		unknown(t, tab, "an object older than the fence")
		u.Done()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := tab.Fence(t.Context(), fences); err != nil {
			t.Errorf("the fence again: %v", err)
		}
		tab.See(Pod{UID: "q", Addr: addr, RV: 7, Claim: claim(t, "b")})
		synctest.Wait()
		if got := use(t, tab, &closed).Claim(); got.ClaimID != "b" {
			t.Errorf("%+v", got)
		}
		if err := tab.Fence(t.Context(), fences); err != nil || closed != 1 {
			t.Errorf("a fence of the past closes what is newer: %d, %v", closed, err)
		}
		tab.PodsSeen(6)
		if len(tab.fences) != 0 || len(tab.leaving) != 0 {
			t.Errorf("left: %v, %v", tab.fences, tab.leaving)
		}
	})
}

// A connection that does not end leaves the fence open.
func TestFenceWithoutAnEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tab, _ := table()
		tab.See(Pod{UID: "p", Addr: addr, RV: 5, Claim: claim(t, "a")})
		synctest.Wait()
		closed := 0
		u := use(t, tab, &closed)
		tab.Gone("p") // the watch is faster than the fence
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := tab.Fence(ctx, []routecache.Fence{{Addr: addr, RV: 6}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("acknowledged: %v", err)
		}
		u.Done()
		if err := tab.Fence(t.Context(), []routecache.Fence{{Addr: addr, RV: 6}}); err != nil {
			t.Error(err)
		}
	})
}

// What the watch says ends a claim at once: another claim, another pod, another address.
func TestSeeEnds(t *testing.T) {
	for what, end := range map[string]func(*testing.T, *Table){
		"another claim":   func(t *testing.T, tab *Table) { tab.See(Pod{UID: "p", Addr: addr, RV: 6, Claim: claim(t, "b")}) },
		"no claim":        func(t *testing.T, tab *Table) { tab.See(Pod{UID: "p", Addr: addr, RV: 6}) },
		"another pod":     func(t *testing.T, tab *Table) { tab.See(Pod{UID: "q", Addr: addr, RV: 6, Claim: claim(t, "b")}) },
		"another address": func(t *testing.T, tab *Table) { tab.See(Pod{UID: "p", Addr: addr.Next(), RV: 6, Claim: claim(t, "a")}) },
		"gone":            func(t *testing.T, tab *Table) { tab.Gone("p") },
		"the lease":       func(t *testing.T, tab *Table) { go func() { _ = tab.Drop(t.Context()) }() },
	} {
		t.Run(what, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				tab, _ := table()
				tab.See(Pod{UID: "p", Addr: addr, RV: 5, Claim: claim(t, "a", "*")})
				synctest.Wait()
				closed := 0
				u, old := use(t, tab, &closed), tab.Arrive(addr)
				end(t, tab)
				synctest.Wait()
				if closed != 1 || u.Claim() != nil || u.Judge("x.com").Allowed {
					t.Errorf("closed %d times, claim %+v", closed, u.Claim())
				}
				if got, err := old.Wait(t.Context(), func() {}); !errors.Is(err, ErrUnknown) {
					t.Errorf("a connection of before: %+v, %v", got, err)
				}
				u.Done()
			})
		})
	}
}

// A claim is known while the lease is held.
func TestLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tab, lost := table()
		tab.See(Pod{UID: "p", Addr: addr, RV: 5, Claim: claim(t, "a", "*")})
		synctest.Wait()
		closed := 0
		u := use(t, tab, &closed)
		lost.Store(true)
		if u.Claim() != nil || u.Judge("x.com").Allowed {
			t.Error("a claim is served without a lease")
		}
		unknown(t, tab, "a connection without a lease")
	})
}

// A policy that decides otherwise about a connection's host closes it; others see it.
func TestPolicyChanges(t *testing.T) {
	for _, c := range []struct {
		host, then string
		close      int
	}{{"a.com", "a.com", 0}, {"a.com", "b.com", 1}, {"", "b.com", 0}, {"ruled.com", "*", 0}} {
		bubble.Test(t, func(t *testing.T) {
			tab, _ := table()
			tab.See(Pod{UID: "p", Addr: addr, RV: 5, Claim: claim(t, "a", "*")})
			synctest.Wait()
			closed := 0
			u := use(t, tab, &closed)
			if c.host != "" && !u.Judge(c.host).Allowed {
				t.Fatalf("%s is not allowed", c.host)
			}
			tab.See(Pod{UID: "p", Addr: addr, RV: 6, Claim: claim(t, "a", c.then)})
			if closed != c.close || u.Judge("c.com").Allowed != (c.then == "*") {
				t.Errorf("%+v: closed %d times, %+v", c, closed, u.Judge("c.com"))
			}
		})
	}
}

// What a former sandbox left in the kernel's queue is never the next one's, also if the
// process accepts it only after the next one's claim.
func TestFormerConnectionsInTheQueue(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var door *Door
	passed := make(chan error, 2)
	tab := NewTable(Options{
		Held: func() bool { return true }, Log: slog.New(slog.DiscardHandler),
		Barrier: func(ctx context.Context) error {
			err := door.Pass(ctx)
			passed <- err
			return err
		},
	})
	door = NewDoor(l, tab)
	dial := func() net.Conn {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	former := dial() // and nothing accepts
	tab.See(Pod{UID: "q", Addr: addr, RV: 7, Claim: claim(t, "next")})
	c, arrival, err := door.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if c.RemoteAddr().String() != former.LocalAddr().String() {
		t.Fatalf("accepted %s first", c.RemoteAddr())
	}
	if u, err := arrival.Wait(t.Context(), func() {}); !errors.Is(err, ErrUnknown) {
		t.Errorf("a former sandbox's connection is served: %+v, %v", u, err)
	}
	accepted := make(chan Arrival, 1)
	go func() {
		_, arrival, err := door.Accept() // of the barrier's connection it says nothing
		if err != nil {
			t.Error(err)
		}
		accepted <- arrival
	}()
	if err := <-passed; err != nil {
		t.Fatal(err)
	}
	// The barrier has returned; the table notes it under its lock soon after.
	for tab.Arrive(addr).e == nil {
		if t.Context().Err() != nil {
			t.Fatal("the address stays unknown")
		}
	}
	next := dial()
	u, err := (<-accepted).Wait(t.Context(), func() {})
	if err != nil || u.Claim().ClaimID != "next" {
		t.Errorf("%s: %v", next.LocalAddr(), err)
	}
}

// A barrier that does not pass leaves its address unknown, and is tried again.
func TestBarrierFails(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tab, _ := table()
		fail := true
		tab.o.Barrier = func(ctx context.Context) error {
			if fail {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		p := Pod{UID: "p", Addr: addr, RV: 5, Claim: claim(t, "a")}
		tab.See(p)
		synctest.Wait()
		unknown(t, tab, "before the barrier")
		time.Sleep(barrierTimeout)
		synctest.Wait()
		unknown(t, tab, "after a barrier that failed")
		fail = false
		tab.See(p)
		synctest.Wait()
		closed := 0
		use(t, tab, &closed)
	})
}
