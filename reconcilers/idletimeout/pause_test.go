package idletimeout

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
)

// An idle sandbox that asks for it is paused by the same two steps: not if it is in use,
// and the token goes with the write. What cannot be frozen ends.
func TestIdleSandboxIsPaused(t *testing.T) {
	for what, c := range map[string]struct {
		used, freezer bool
		most          int32
		mode          v1alpha1.PauseMode
		store         bool
		ends, paused  bool
	}{
		"idle":                    {false, true, 1, "", false, false, true},
		"in use":                  {true, true, 1, "", false, false, false},
		"without freezer":         {false, false, 1, "", false, true, false},
		"without room":            {false, true, 0, "", false, true, false},
		"hibernates":              {false, true, 0, v1alpha1.PauseHibernate, true, false, true},
		"hibernates, in use":      {true, true, 0, v1alpha1.PauseHibernate, true, false, false},
		"hibernates, but nowhere": {false, true, 1, v1alpha1.PauseHibernate, false, true, false},
	} {
		g := &gateways{prepare: func([]controlplane.Release) (map[string]bool, error) { return map[string]bool{"s": c.used}, nil }}
		r, clock, api := idleNow(t, g, "s")
		s := read(t, api, "s")
		s.Spec.Timeouts.OnTimeout, s.Spec.Timeouts.OnTimeoutMode, r.Hibernates = v1alpha1.TimeoutPause, c.mode, c.store
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "pod", UID: "u",
			Labels: map[string]string{v1alpha1.LabelSandboxID: "s"}, Annotations: map[string]string{v1alpha1.AnnotationClaim: "c-s"},
		}}
		if c.freezer {
			pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: v1alpha1.SandboxdPort}}}}
		}
		pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
		pool.Spec.Pause = &v1alpha1.PoolPause{MaxPaused: &c.most, Modes: []v1alpha1.PauseMode{v1alpha1.PauseFreeze, v1alpha1.PauseHibernate}}
		for _, err := range []error{api.Update(t.Context(), s), api.Create(t.Context(), pod), api.Create(t.Context(), pool)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		r.check(t.Context())
		got := read(t, api, "s").Spec
		if got.Paused != c.paused || (got.End != nil) != c.ends || got.Release != nil && got.End == nil || (got.PauseMode != "") != c.paused || c.paused && got.PauseMode != v1alpha1.TimeoutMode(s) {
			t.Errorf("%s: %+v", what, got)
		}
		// Paused, it is not idle, however long it is not used.
		clock.Step(r.interval * 1000)
		r.check(t.Context())
		if c.paused && read(t, api, "s").Spec.End != nil {
			t.Errorf("%s: it has ended", what)
		}
	}
}

// A sandbox whose files are being restored is not idle, though its status says Running of a
// time before its pause; nor is it ended if it has come to be so while gateways were asked.
func TestARestoringSandboxIsNotIdle(t *testing.T) {
	for what, after := range map[string]bool{"before the check": false, "after the token": true} {
		g := &gateways{}
		r, _, api := idleNow(t, g, "s")
		restore := func() {
			s := read(t, api, "s")
			s.Spec.PauseMode, s.Spec.Restore = v1alpha1.PauseHibernate, &v1alpha1.Restore{Checkpoint: "cp"}
			if err := api.Update(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		g.prepare = func([]controlplane.Release) (map[string]bool, error) {
			if after {
				restore()
			}
			return map[string]bool{"s": false}, nil
		}
		if !after {
			restore()
		}
		r.check(t.Context())
		if s := read(t, api, "s").Spec; s.End != nil || s.Restore == nil || after != (len(g.prepared) == 1) {
			t.Errorf("%s: asked %+v, %+v", what, g.prepared, s)
		}
	}
}

// Idle time counts anew from a resume, also if no check has seen the pause before it.
func TestAPauseBetweenTwoChecksCounts(t *testing.T) {
	for what, again := range map[string]bool{"the first pause": false, "a later pause": true} {
		g := &gateways{at: nobody}
		s := running("s", time.Minute)
		if again {
			s.Spec.PauseMode, s.Spec.PauseOrder = v1alpha1.PauseFreeze, 2
		}
		r, clock, api := setup(t, g, s)
		r.check(t.Context())
		clock.Step(59 * time.Second)
		r.check(t.Context())
		s = read(t, api, "s")
		s.Spec.PauseMode, s.Spec.PauseOrder = v1alpha1.PauseFreeze, s.Spec.PauseOrder+2 // paused and resumed
		if err := api.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		for i, wait := range []time.Duration{2 * time.Second, 57 * time.Second, 3 * time.Second} {
			clock.Step(wait)
			r.check(t.Context())
			if last := i == 2; (len(g.prepared) > 0) != last {
				t.Errorf("%s: %d: releases %+v", what, i, g.prepared)
			}
		}
	}
}
