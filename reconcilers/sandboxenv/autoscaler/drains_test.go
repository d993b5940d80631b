package autoscaler

import (
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A drain begins and ends once, whatever steps come meanwhile, and is called stuck each
// five minutes at most.
func TestDrains(t *testing.T) {
	var m memory
	pool := &v1alpha1.SandboxPool{}
	pool.UID = "p"
	look := func(when string, at time.Duration, replicas, unclaimed int32, steps bool, want string) {
		t.Helper()
		pool.Spec.Replicas, pool.Status.Idle = replicas, unclaimed
		got := "nothing"
		began, ended, stuck := m.drain(pool, replicas, steps, t0.Add(at))
		for word, is := range map[string]bool{"began": began, "ended": ended, "stuck": stuck} {
			if is {
				got = word
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	look("no step", 0, 4, 4, false, "nothing")
	look("a step", 0, 3, 4, true, "began")
	look("its pods are there", time.Minute, 3, 4, false, "nothing")
	look("another step", 2*time.Minute, 2, 4, true, "nothing")
	look("five minutes", stuckAfter, 2, 4, false, "stuck")
	look("soon after", stuckAfter+time.Minute, 2, 3, false, "nothing")
	look("ten minutes", 2*stuckAfter, 2, 3, false, "stuck")
	look("its pods are gone", 2*stuckAfter+time.Second, 2, 2, false, "ended")
	look("later", time.Hour, 2, 4, false, "nothing")
	look("a step again", time.Hour, 1, 4, true, "began")
}
