package writes

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

const restorePath = "/spec/restore/checkpoint"

// HibernateFrozen makes a frozen sandbox hibernate, if it is as it was read.
func HibernateFrozen(s *v1alpha1.Sandbox) Patch {
	return asRead(s).
		Test("/spec/paused", true).
		Test("/spec/pauseMode", v1alpha1.PauseFreeze).
		Set("/spec/pauseMode", v1alpha1.PauseHibernate).
		nextOrder(s)
}

// GiveUpPod takes the binding away from a sandbox that hibernates and names the checkpoint
// with its files: if the sandbox has the same claim, and is still to hibernate by the same
// pause. Other changes of its spec do not matter: its files need not be kept once more.
func GiveUpPod(s *v1alpha1.Sandbox, checkpoint string) Patch {
	return For(s.UID).
		Test("/metadata/deletionTimestamp", nil).
		Test("/spec/end", nil).
		Test("/spec/binding/claimID", s.Spec.Binding.ClaimID).
		ofOrder(s).
		Test("/spec/paused", true).
		Test("/spec/pauseMode", v1alpha1.PauseHibernate).
		Remove("/spec/binding").
		Set("/spec/restore", v1alpha1.Restore{Checkpoint: checkpoint})
}

// Rebind adds to a patch that binds a hibernated sandbox to a pod: the sandbox is resumed
// and ends at endAt; nil is no end. restore stays until its files are restored.
func Rebind(p Patch, s *v1alpha1.Sandbox, endAt *metav1.Time) Patch {
	p = p.Test("/metadata/generation", s.Generation).
		Test("/spec/paused", true).
		Test(restorePath, s.Spec.Restore.Checkpoint).
		Remove("/spec/paused").
		nextOrder(s)
	switch {
	case endAt == nil:
		return p
	case s.Spec.Timeouts == (v1alpha1.SandboxTimeouts{}): // there may be no object to add to
		return p.Set("/spec/timeouts", v1alpha1.SandboxTimeouts{EndAt: endAt})
	}
	return p.Set("/spec/timeouts/endAt", endAt)
}

// Restored says that the pod of the sandbox's claim has its files, so that requests may
// reach it, and sets its end time; nil leaves that as it is.
func Restored(s *v1alpha1.Sandbox, endAt *metav1.Time) Patch {
	p := For(s.UID).
		Test("/metadata/deletionTimestamp", nil).
		Test("/spec/end", nil).
		Test("/spec/binding/claimID", s.Spec.Binding.ClaimID).
		Test(restorePath, s.Spec.Restore.Checkpoint).
		Remove("/spec/restore")
	if endAt == nil {
		return p
	}
	return p.Set("/spec/timeouts/endAt", endAt)
}

// Rehibernate takes back a resume that has not restored the sandbox's files, if the sandbox
// is as it was read. If it has a pod, that is given up.
func Rehibernate(s *v1alpha1.Sandbox) Patch {
	p := unchanged(s).
		Test(restorePath, s.Spec.Restore.Checkpoint).
		Set("/spec/paused", true).
		nextOrder(s)
	if s.Spec.Binding != nil {
		p = p.Remove("/spec/binding")
	}
	if s.Spec.Release != nil {
		p = p.Remove("/spec/release")
	}
	if s.Spec.Timeouts.EndAt != nil {
		p = p.Remove("/spec/timeouts/endAt")
	}
	return p
}
