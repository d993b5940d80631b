// Package sandboxpool keeps the pods of a SandboxPool: spec.replicas unclaimed
// ones within maxPods, and one more for each claim that waits, each moved through its
// phases by conditional writes. Fill in a [SandboxPoolReconciler] and call its
// SetupWithManager; the controller (leader) runs one.
//
// It is not the scheduler: it never claims a pod and never deletes one that may
// be claimed. It does not end sandboxes, but for those of a pool that is being
// deleted; it marks their pods failed, and reconcilers/sandbox draws the
// conclusion.
//
// decide.go has the states of a pod, decide_scale.go and demand.go how many there are,
// retire.go what is deleted, reconciler.go what happens when a step fails.
package sandboxpool
