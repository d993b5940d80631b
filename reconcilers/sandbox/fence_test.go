package sandbox

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

func TestFencesAskAgainWithTheSameVersionAfterABackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var versions []uint64
		var woken int
		answer := errors.New("a gateway is away")
		f := newFences(clock.RealClock{}, func(_ context.Context, _ netip.Addr, rv uint64) error {
			versions = append(versions, rv)
			return answer
		})
		f.requeue = func(string) { woken++ }
		addr := netip.MustParseAddr("10.0.0.1")
		f.begin("s", "u", addr, 7, record{})
		for n, want := range []time.Duration{1, 2, 4, 8, 15, 15} {
			synctest.Wait()
			want *= time.Second
			// Looks in between do not make it ask sooner, nor wait longer.
			f.begin("s", "u", addr, 9, record{})
			if v, ok := f.progress("s", "u"); !ok || v.done || v.wait != want || len(versions) != n+1 || woken != n+1 {
				t.Errorf("%+v, %v after %d attempts, want a wait of %v", v, ok, len(versions), want)
			}
			time.Sleep(want)
			f.progress("s", "u")
		}
		synctest.Wait()
		answer = nil
		time.Sleep(mostFenceWait)
		f.progress("s", "u")
		synctest.Wait()
		if v, ok := f.progress("s", "u"); !ok || !v.done {
			t.Errorf("%+v, %v after all have acknowledged", v, ok)
		}
		if slices.ContainsFunc(versions, func(rv uint64) bool { return rv != 7 }) {
			t.Errorf("asked with versions %v", versions)
		}
		if _, ok := f.progress("s", "a later one of this ID"); ok {
			t.Error("another sandbox's fence is this one's")
		}
		f.forget("s")
		if _, ok := f.progress("s", "u"); ok {
			t.Error("remembers what was to be forgotten")
		}
	})
}
