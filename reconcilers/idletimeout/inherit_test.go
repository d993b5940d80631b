package idletimeout

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Leaders are replaced more often than the sandbox's timeout passes: it is released a timeout
// after the first of them saw it run.
func TestIdleTimePassesWhileLeadersAreReplaced(t *testing.T) {
	s := running("s", 12*time.Second)
	first, clock, c := setup(t, &gateways{at: nobody}, s)
	began := clock.Now()
	first.check(t.Context())
	for i := range 3 {
		clock.Step(5 * time.Second)
		g := &gateways{at: nobody, since: map[string]seenRunning{"s": {began, 0}}}
		if i == 0 { // it cannot judge before every gateway has answered
			g.at = func(int) (map[string]time.Time, error) { return nil, errors.New("silent") }
		}
		next, its, _ := setup(t, g)
		its.SetTime(clock.Now())
		next.client, next.feed = c, &listed{client: c}
		next.check(t.Context())
		want := v1alpha1.EndReason("")
		if i == 2 {
			want = v1alpha1.EndIdleTimeout
		}
		if got := ended(t, c, "s"); got != want {
			t.Errorf("%v after it was first seen: end %q, want %q", clock.Since(began), got, want)
		}
	}
}

// What a leader noted of a sandbox does not count for the next one if it may have been paused
// and resumed between them, though the status shows it running.
func TestWhatWasPausedSinceCountsAnew(t *testing.T) {
	for name, tc := range map[string]struct {
		noted int64
		paused,
		ends bool
	}{
		"never paused, and changed since": {noted: 0, ends: true},
		"resumed before it was noted":     {noted: 4, paused: true, ends: true},
		"may have been resumed since":     {noted: 2, paused: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := running("s", 5*time.Second)
			s.Generation = 8
			if tc.paused {
				s.Spec.PauseMode, s.Spec.PauseOrder = v1alpha1.PauseFreeze, 4
				s.Status.Pause = &v1alpha1.PauseStatus{Order: 4, State: v1alpha1.ReasonResumed}
			}
			g := &gateways{at: nobody}
			r, clock, c := setup(t, g, s)
			g.since = map[string]seenRunning{"s": {clock.Now().Add(-time.Minute), tc.noted}}
			r.check(t.Context())
			if got := ended(t, c, "s"); got != "" != tc.ends {
				t.Errorf("end %q at the first look", got)
			}
			clock.Step(5 * time.Second)
			r.check(t.Context())
			if got := ended(t, c, "s"); got != v1alpha1.EndIdleTimeout {
				t.Errorf("end %q a timeout later", got)
			}
		})
	}
}

// status.lastActive is for people: a sandbox may have been used after it was written, by a
// gateway that was killed since, or may be in use now.
func TestStatusIsNoProof(t *testing.T) {
	s := running("s", 5*time.Second)
	long := metav1.NewTime(time.Now().Add(-time.Hour))
	s.Status.LastActive = &long
	g := &gateways{at: nobody}
	r, clock, c := setup(t, g, s)
	g.since = map[string]seenRunning{"s": {clock.Now().Add(-time.Hour), 0}}
	g.floor = clock.Now() // what a gateway knew is lost
	for range 4 {
		r.check(t.Context())
		if got := ended(t, c, "s"); got != "" {
			t.Fatalf("end %q %v after a memory was lost", got, clock.Since(g.floor))
		}
		clock.Step(time.Second)
	}
	clock.Step(time.Second)
	r.check(t.Context())
	if got := ended(t, c, "s"); got != v1alpha1.EndIdleTimeout {
		t.Errorf("end %q a timeout after", got)
	}
}
