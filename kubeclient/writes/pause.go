package writes

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Pause freezes a bound sandbox, if it is as it was read: with the same claim and without an
// end. It calls an idle release off that is under way, since the sandbox would be ended
// otherwise. It removes the end time, since paused time uses no timeout.
func Pause(s *v1alpha1.Sandbox) Patch { return PauseAs(s, v1alpha1.PauseFreeze) }

// PauseAs is Pause in a mode. A sandbox that is to hibernate is frozen too, until its files
// are kept and GiveUpPod is written.
func PauseAs(s *v1alpha1.Sandbox, mode v1alpha1.PauseMode) Patch {
	p := asRead(s)
	if s.Spec.Release == nil {
		p = p.Test("/spec/release", nil)
	} else {
		p = p.Test("/spec/release/token", s.Spec.Release.Token).Remove("/spec/release")
	}
	p = p.Test("/spec/restore", nil).
		Set("/spec/paused", true).
		Set("/spec/pauseMode", mode).
		nextOrder(s)
	if s.Spec.Timeouts.EndAt != nil {
		p = p.Remove("/spec/timeouts/endAt")
	}
	return p
}

// PauseIdle pauses a sandbox, in the mode of its timeouts, as the commit of the idle
// release with this token, which it removes: if the release was not called off and the
// claim is the same.
func PauseIdle(s *v1alpha1.Sandbox, token string) Patch {
	p := For(s.UID).
		Test("/metadata/deletionTimestamp", nil).
		Test("/spec/end", nil).
		Test("/spec/binding/claimID", s.Spec.Binding.ClaimID).
		Test("/spec/release/token", token).
		Test("/spec/restore", nil).
		Remove("/spec/release").
		Set("/spec/paused", true).
		Set("/spec/pauseMode", v1alpha1.TimeoutMode(s)).
		nextOrder(s)
	if s.Spec.Timeouts.EndAt != nil {
		p = p.Remove("/spec/timeouts/endAt")
	}
	return p
}

// Resume resumes a paused sandbox, if it is as it was read, and sets its end time; nil is
// no end. pauseMode stays: the sandbox may still be frozen.
func Resume(s *v1alpha1.Sandbox, endAt *metav1.Time) Patch {
	p := asRead(s).Test("/spec/paused", true).Remove("/spec/paused").nextOrder(s)
	switch {
	case endAt == nil:
		return p
	case s.Spec.Timeouts == (v1alpha1.SandboxTimeouts{}): // there may be no object to add to
		return p.Set("/spec/timeouts", v1alpha1.SandboxTimeouts{EndAt: endAt})
	}
	return p.Set("/spec/timeouts/endAt", endAt)
}

const orderPath = "/spec/pauseOrder"

// nextOrder gives a pause or a resume its number, if the sandbox's last one is that which was
// read.
func (p Patch) nextOrder(s *v1alpha1.Sandbox) Patch {
	return p.ofOrder(s).Set(orderPath, s.Spec.PauseOrder+1)
}

// ofOrder tests that the sandbox was neither paused nor resumed since it was read.
func (p Patch) ofOrder(s *v1alpha1.Sandbox) Patch {
	if s.Spec.PauseOrder == 0 {
		return p.Test(orderPath, nil)
	}
	return p.Test(orderPath, s.Spec.PauseOrder)
}

// asRead tests that the sandbox is the one that was read. The generation counts the
// changes of its spec.
func asRead(s *v1alpha1.Sandbox) Patch {
	return unchanged(s).Test("/spec/binding/claimID", s.Spec.Binding.ClaimID)
}

// unchanged is asRead of a sandbox that may have no binding.
func unchanged(s *v1alpha1.Sandbox) Patch {
	return For(s.UID).
		Test("/metadata/generation", s.Generation).
		Test("/metadata/deletionTimestamp", nil).
		Test("/spec/end", nil)
}
