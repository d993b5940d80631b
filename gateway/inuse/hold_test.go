package inuse

import (
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/bubble"
)

func lifted(t *testing.T, h Held) bool {
	t.Helper()
	select {
	case <-h.Lifted:
		return true
	default:
		return false
	}
}

func TestHoldLastsAsLongAsAnyToken(t *testing.T) {
	r := NewRegistry(nil)
	use := r.ClaimUse("a", "c")
	if _, held := r.HeldNow("a", "c"); held || use.Holding() {
		t.Fatal("held by nobody")
	}
	r.Hold("a", "c", "t1")
	h, ok := r.HeldNow("a", "c")
	if !ok || !use.Holding() || len(h.Tokens) != 1 || r.ClaimUse("a", "other").Holding() {
		t.Fatalf("held %+v, %v", h, ok)
	}
	r.Hold("a", "c", "t2") // a release begun anew
	r.Hold("a", "c", "t1") // a watch that is behind shows the one before
	r.Lift("a", "c", "t1") // and its end
	r.Lift("a", "c", "unknown")
	if !use.Holding() || lifted(t, h) {
		t.Fatal("the end of one release undid the hold of another")
	}
	r.Lift("a", "c", "t2")
	if use.Holding() || !lifted(t, h) {
		t.Fatal("still held")
	}
	r.Hold("a", "c", "t3")
	if again, _ := r.HeldNow("a", "c"); !use.Holding() || lifted(t, again) {
		t.Error("not held anew")
	}
}

// A request that waits for a claim that ends goes on, but no later one gets through:
// the use stays held.
func TestOverEndsAHold(t *testing.T) {
	r := NewRegistry(nil)
	use := r.ClaimUse("a", "c")
	r.Hold("a", "c", "t")
	h, _ := r.HeldNow("a", "c")
	r.ClaimEnded("a", "c")
	if _, held := r.HeldNow("a", "c"); held || !lifted(t, h) || !use.Holding() {
		t.Errorf("held %v, woken %v, use held %v", held, lifted(t, h), use.Holding())
	}
	r.Hold("a", "c", "late")
	if _, held := r.HeldNow("a", "c"); held {
		t.Error("a claim that is over is held")
	}
}

func TestInUse(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := NewRegistry(nil)
		if r.InUse("a", "c", time.Hour) {
			t.Error("in use though never touched")
		}
		r.ClaimUse("a", "c").Touch(r.Now())
		time.Sleep(5 * time.Second)
		for within, want := range map[time.Duration]bool{5 * time.Second: false, 5*time.Second + 1: true} {
			if got := r.InUse("a", "c", within); got != want {
				t.Errorf("within %v: %v", within, got)
			}
		}
		if r.InUse("a", "other", time.Hour) {
			t.Error("another claim's use counts")
		}
		unpark := r.Park("a")
		if !r.InUse("a", "c", time.Second) {
			t.Error("parked, and not in use")
		}
		unpark()
		if !r.InUse("a", "c", time.Second) {
			t.Error("just unparked, and not in use")
		}
		r.Hold("a", "c", "t")
		time.Sleep(time.Second)
		if h, _ := r.HeldNow("a", "c"); h.Age != time.Second {
			t.Errorf("held for %v", h.Age)
		}
	})
}

// A request that waits for a live read is in use for a look, and in no report.
func TestResolving(t *testing.T) {
	now := newNow()
	r := NewRegistry(now.Now)
	first, second := r.Resolving("a"), r.Resolving("a")
	want := func(what string, want bool) {
		t.Helper()
		if got := r.InUse("a", "c", time.Hour); got != want {
			t.Errorf("%s: in use: %v", what, got)
		}
		if entries := r.LastActive(0).Entries; len(entries) != 0 {
			t.Errorf("%s: reported %+v", what, entries)
		}
	}
	want("two requests", true)
	first()
	first()
	want("one request", true)
	if r.InUse("b", "c", time.Hour) {
		t.Error("another sandbox is in use")
	}
	second()
	want("none", false)
	if r.ClaimUse("a", "c").Load() != 0 || len(r.resolving) != 0 {
		t.Errorf("use %d, %d left", r.ClaimUse("a", "c").Load(), len(r.resolving))
	}
}
