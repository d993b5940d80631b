// Package pausing makes the writes that pause and resume a sandbox: spec.paused, and
// what goes with it. All that pause or resume one make them here.
//
// It sends nothing, and asks no freezer: the sender of the write does (gateway/pause), or
// leaves it to the controller. Its functions are safe for concurrent use.
package pausing

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/jsonpatch"
)

// Pause freezes a sandbox that is bound, if it is as it was read: of the same claim, not
// ended, and not about to be. Its end time goes: paused time uses no timeout.
func Pause(s *v1alpha1.Sandbox) jsonpatch.Patch { return PauseAs(s, v1alpha1.PauseFreeze) }

// PauseAs is Pause in a mode. One that hibernates is frozen too, until its files are kept
// and GiveUpPod is written.
func PauseAs(s *v1alpha1.Sandbox, mode v1alpha1.PauseMode) jsonpatch.Patch {
	p := asRead(s).
		Test("/spec/release", nil).
		Test("/spec/restore", nil).
		Set("/spec/paused", true).
		Set("/spec/pauseMode", mode)
	if s.Spec.Timeouts.EndAt != nil {
		p = p.Remove("/spec/timeouts/endAt")
	}
	return p
}

// PauseIdle pauses a sandbox, in the mode of its timeouts, by the idle release that has this token, which it takes
// away: if that has not been called off, of the same claim.
func PauseIdle(s *v1alpha1.Sandbox, token string) jsonpatch.Patch {
	p := jsonpatch.For(s.UID).
		Test("/metadata/deletionTimestamp", nil).
		Test("/spec/end", nil).
		Test("/spec/binding/claimID", s.Spec.Binding.ClaimID).
		Test("/spec/release/token", token).
		Test("/spec/restore", nil).
		Remove("/spec/release").
		Set("/spec/paused", true).
		Set("/spec/pauseMode", v1alpha1.TimeoutMode(s))
	if s.Spec.Timeouts.EndAt != nil {
		p = p.Remove("/spec/timeouts/endAt")
	}
	return p
}

// Resume resumes a sandbox that is paused, if it is as it was read, to end at that time;
// nil is no end. pauseMode stays: the sandbox may be frozen still.
func Resume(s *v1alpha1.Sandbox, endAt *metav1.Time) jsonpatch.Patch {
	p := asRead(s).Test("/spec/paused", true).Remove("/spec/paused")
	switch {
	case endAt == nil:
		return p
	case s.Spec.Timeouts == (v1alpha1.SandboxTimeouts{}): // there may be no object to add to
		return p.Set("/spec/timeouts", v1alpha1.SandboxTimeouts{EndAt: endAt})
	}
	return p.Set("/spec/timeouts/endAt", endAt)
}

// asRead tests that the sandbox is the one that was read. The generation counts the
// changes of its spec.
func asRead(s *v1alpha1.Sandbox) jsonpatch.Patch {
	return unchanged(s).Test("/spec/binding/claimID", s.Spec.Binding.ClaimID)
}

// unchanged is asRead of a sandbox that may have no binding.
func unchanged(s *v1alpha1.Sandbox) jsonpatch.Patch {
	return jsonpatch.For(s.UID).
		Test("/metadata/generation", s.Generation).
		Test("/metadata/deletionTimestamp", nil).
		Test("/spec/end", nil)
}
