package sandbox

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/bubble"
)

func TestFencesAskAgainWithTheSameVersionAfterABackOff(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var versions []uint64
		var woken int
		answer := errors.New("a gateway is away")
		f := newFences(clock.RealClock{}, func(_ context.Context, _ netip.Addr, rv uint64, _ bool) error {
			versions = append(versions, rv)
			return answer
		})
		f.requeue = func(string) { woken++ }
		addr, key := netip.MustParseAddr("10.0.0.1"), fenceKey{id: "s"}
		f.begin(key, openFence{of: "u", addr: addr, rv: 7})
		for n, want := range []time.Duration{1, 2, 4, 8, 15, 15} {
			synctest.Wait()
			want *= time.Second
			// Looks in between do not make it ask sooner, nor wait longer.
			f.begin(key, openFence{of: "u", addr: addr, rv: 9})
			if v, ok := f.progress(key, "u"); !ok || v.done || v.wait != want || len(versions) != n+1 || woken != n+1 {
				t.Errorf("%+v, %v after %d attempts, want a wait of %v", v, ok, len(versions), want)
			}
			time.Sleep(want)
			f.progress(key, "u")
		}
		synctest.Wait()
		answer = nil
		time.Sleep(maxFenceWait)
		f.progress(key, "u")
		synctest.Wait()
		if v, ok := f.progress(key, "u"); !ok || !v.done {
			t.Errorf("%+v, %v after all have acknowledged", v, ok)
		}
		if slices.ContainsFunc(versions, func(rv uint64) bool { return rv != 7 }) {
			t.Errorf("asked with versions %v", versions)
		}
		if _, ok := f.progress(key, "a later one of this ID"); ok {
			t.Error("another sandbox's fence is this one's")
		}
		if _, ok := f.progress(fenceKey{"s", "c"}, "u"); ok {
			t.Error("the fence of an end is that of a claim")
		}
		f.forget(key)
		if _, ok := f.progress(key, "u"); ok {
			t.Error("remembers what was to be forgotten")
		}
	})
}

// The fence of a claim that a pause gave up goes on, though the sandbox is bound anew and
// then ended while a gateway does not answer.
func TestFenceOfAFormerClaimOutlivesTheEnd(t *testing.T) {
	g, _ := pausable(t)
	g.fence = errors.New("a gateway is away")
	g.spec(t, hibernated)
	g.step(t)
	g.spec(t, func(s *v1alpha1.SandboxSpec) {
		s.Paused, s.Restore, s.Binding = false, nil, &v1alpha1.Binding{ClaimID: "c2", PodName: "pod2", PodUID: "u2"}
	})
	g.claimedAnew(t)
	g.step(t)
	g.spec(t, func(s *v1alpha1.SandboxSpec) {
		s.End = &v1alpha1.End{Reason: v1alpha1.EndReleased, At: metav1.NewTime(now)}
	})
	g.fence = nil
	g.step(t) // the end's own fence
	if s := g.sandbox(t); s.Status.Phase != v1alpha1.SandboxEnded || g.Ledger.IsFenced("c") {
		t.Fatalf("status %+v, the former claim is fenced: %v", s.Status, g.Ledger.IsFenced("c"))
	}
	g.clock.SetTime(now.Add(maxFenceWait))
	if g.step(t); !g.Ledger.IsFenced("c") {
		t.Error("the former claim is not fenced")
	}
}
