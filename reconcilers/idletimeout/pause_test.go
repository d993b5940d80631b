package idletimeout

import (
	"context"
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
)

// pauser pauses those sandboxes whose timeouts say so.
type pauser struct {
	t   *testing.T
	api client.Client
	err error
}

func (p pauser) PauseIdle(ctx context.Context, s *v1alpha1.Sandbox, token string) (bool, error) {
	if p.err != nil || s.Spec.Timeouts.OnTimeout != v1alpha1.TimeoutPause {
		return false, p.err
	}
	s = read(p.t, p.api, s.Name)
	if s.Spec.Release == nil || s.Spec.Release.Token != token {
		p.t.Errorf("asked to pause %+v by the token %s", s.Spec, token)
	}
	s.Spec.Paused, s.Spec.Release = true, nil
	return true, p.api.Update(ctx, s)
}

// An idle sandbox that is paused instead takes the same two steps: not if it is in use, and
// its token goes with the pause. What cannot be paused ends, but not while that is not known.
func TestIdleSandboxIsPaused(t *testing.T) {
	for what, c := range map[string]struct {
		used         bool
		on           v1alpha1.TimeoutAction
		err          error
		ends, paused bool
	}{
		"idle":                {false, v1alpha1.TimeoutPause, nil, false, true},
		"in use":              {true, v1alpha1.TimeoutPause, nil, false, false},
		"ends at its timeout": {false, "", nil, true, false},
		"the pause fails":     {false, v1alpha1.TimeoutPause, errors.New("away"), false, false},
	} {
		g := &gateways{prepare: func([]controlplane.Release) (map[string]bool, error) { return map[string]bool{"s": c.used}, nil }}
		r, clock, api := idleNow(t, g, "s")
		s := read(t, api, "s")
		s.Spec.Timeouts.OnTimeout, r.Pauser = c.on, pauser{t, api, c.err}
		if err := api.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		r.check(t.Context())
		got := read(t, api, "s").Spec
		if got.Paused != c.paused || (got.End != nil) != c.ends || (got.Release != nil) != (c.ends || c.err != nil) {
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
