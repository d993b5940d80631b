package sandbox

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestFencesAskAgainWithTheSameVersionAfterABackOff(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(now)
	f := newFences(c, 1)
	if rv, wait, _ := f.ask("s", "u", 7); rv != 7 || wait != 0 {
		t.Fatalf("first: %d, %v", rv, wait)
	}
	at := now
	for _, want := range []time.Duration{1, 2, 4, 8, 15, 15} {
		want *= time.Second
		if got := f.unanswered("s", "u"); got != want {
			t.Errorf("back-off %v, want %v", got, want)
		}
		// Events in between do not make it ask sooner, nor wait longer.
		if rv, wait, _ := f.ask("s", "u", 9); rv != 7 || wait != want {
			t.Errorf("asked at once: %d, %v; want 7, %v", rv, wait, want)
		}
		at = at.Add(want)
		c.SetTime(at)
		if _, wait, _ := f.ask("s", "u", 9); wait > 0 {
			t.Errorf("after the back-off: %v", wait)
		}
	}
	f.acknowledged("s", "u")
	if _, _, done := f.ask("s", "u", 9); !done {
		t.Error("asked again after all have acknowledged")
	}
	if rv, wait, _ := f.ask("s", "a later one of this ID", 11); rv != 11 || wait != 0 {
		t.Errorf("another sandbox: %d, %v", rv, wait)
	}
}

func TestFencesLeaveWorkersFree(t *testing.T) {
	f := newFences(clocktesting.NewFakePassiveClock(now), 2)
	for n, want := range []bool{true, true, false} {
		if f.enter() != want {
			t.Errorf("the slot number %d: %v", n+1, !want)
		}
	}
	f.leave()
	if !f.enter() {
		t.Error("a slot that was left is not free")
	}
}
