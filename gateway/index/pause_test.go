package index

import (
	"testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// The paused sandboxes of a pool are counted as they come, go, end and move.
func TestPausedOfAPool(t *testing.T) {
	x := New(Options{})
	record := func(change func(*v1alpha1.Sandbox)) *sandbox {
		s := boundSandbox("s", "c", "p")
		s.Spec.Paused = true
		if change != nil {
			change(s)
		}
		return newSandbox(s)
	}
	of := boundSandbox("s", "c", "p").Spec
	for i, c := range []struct {
		id     string
		record *sandbox
		here   int
		there  int
	}{
		{"a", record(nil), 1, 0},
		{"b", record(func(s *v1alpha1.Sandbox) { s.Spec.Paused = false }), 1, 0},
		{"b", record(nil), 2, 0},
		{"b", record(func(s *v1alpha1.Sandbox) { s.Spec.Metadata = map[string]string{"a": "b"} }), 2, 0},
		{"b", record(func(s *v1alpha1.Sandbox) { s.Spec.Pool = "there" }), 1, 1},
		{"a", record(func(s *v1alpha1.Sandbox) { s.Spec.End = &v1alpha1.End{} }), 0, 1},
		{"a", nil, 0, 1},
		{"b", nil, 0, 0},
	} {
		x.setSandbox(c.id, c.record)
		if here, there := x.Paused(of.Namespace, of.Pool), x.Paused(of.Namespace, "there"); here != c.here || there != c.there {
			t.Errorf("%d: %d and %d are paused, want %d and %d", i, here, there, c.here, c.there)
		}
	}
	if len(x.paused) != 0 {
		t.Errorf("left are %v", x.paused)
	}
}

// A route goes when its sandbox is paused, and whenever a pause may have passed unseen.
func TestPauseDropsTheRoute(t *testing.T) {
	const id = "s"
	record := func(order int64, change func(*v1alpha1.Sandbox)) *sandbox {
		s := boundSandbox(id, "c", "p")
		s.Generation, s.Spec.PauseOrder = 7, order
		if change != nil {
			change(s)
		}
		return newSandbox(s)
	}
	paused := func(s *v1alpha1.Sandbox) { s.Spec.Paused, s.Spec.PauseMode = true, v1alpha1.PauseFreeze }
	once := func(s *v1alpha1.Sandbox) { s.Spec.PauseMode = v1alpha1.PauseFreeze }
	for _, c := range []struct {
		name     string
		old, new *sandbox
		drops    bool
	}{
		{"another change", record(0, nil), record(0, func(s *v1alpha1.Sandbox) { s.Generation++ }), false},
		{"another change of one that runs again", record(2, once), record(2, func(s *v1alpha1.Sandbox) { once(s); s.Generation++ }), false},
		{"paused", record(0, nil), record(1, paused), true},
		{"first seen paused", nil, record(2, paused), true},
		{"resumed", record(2, paused), record(3, once), true},
		{"paused and resumed unseen", record(0, nil), record(2, once), true},
		{"paused and resumed unseen, not for the first time", record(3, once), record(5, once), true},
		{"known to be awake", record(3, once), record(3, func(s *v1alpha1.Sandbox) { resumed(3, 3, v1alpha1.ReasonResumed)(s) }), false},
	} {
		dropped := false
		h := Hooks{SandboxChanged: func(string) { dropped = true }}
		h.complete()
		h.sandboxChanged(id, c.old, c.new)
		if dropped != c.drops {
			t.Errorf("%s: the route is dropped: %v", c.name, dropped)
		}
	}
}
