// Package sandboxpool keeps the pods of a SandboxPool: spec.replicas unclaimed
// ones within maxPods, and one more for each claim that waits, each moved through its
// phases by conditional writes. Fill in a [SandboxPoolReconciler] and call its
// SetupWithManager; the controller (leader) runs one.
//
// It is not the scheduler: it never claims a pod, and never deletes one that was claimed
// since it was read, because a delete carries the pod's resourceVersion. It ends only the
// sandboxes of a pool that is being deleted. If the pod of any other sandbox breaks, it
// marks the pod failed, and reconcilers/sandbox ends the sandbox.
//
// decide.go has the states of a pod, decide_scale.go and demand.go how many there are,
// retire.go what is deleted, reconciler.go what happens when a step fails.
package sandboxpool
