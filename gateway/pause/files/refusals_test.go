package files

import (
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// After the first pod in which the restore fails the next one is taken at once; after each
// further one no pod is taken for a time that doubles.
func TestRefusals(t *testing.T) {
	now := time.Now()
	s, other := &v1alpha1.Sandbox{}, &v1alpha1.Sandbox{}
	s.UID, s.Spec.Restore = "u", &v1alpha1.Restore{Checkpoint: "c"}
	other.UID, other.Spec.Restore = "u", &v1alpha1.Restore{Checkpoint: "later"}
	var r refusals
	for i, want := range []time.Duration{0, 0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute} {
		if i > 0 {
			r.note(s, now)
		}
		if got := r.delay(s, now); got != want || r.delay(other, now) != 0 {
			t.Errorf("after %d: %v, want %v; another checkpoint's %v", i, got, want, r.delay(other, now))
		}
		now = now.Add(r.delay(s, now))
	}
	r.forget(s)
	if r.note(s, now); r.delay(s, now) != 0 {
		t.Errorf("once it was restored: %v", r.delay(s, now))
	}
	if r.note(other, now.Add(time.Hour)); len(r.all) != 1 {
		t.Errorf("it remembers %d", len(r.all))
	}
}
