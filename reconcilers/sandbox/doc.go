// Package sandbox reconciles Sandboxes, in the controller: it writes their status, ends a
// sandbox when its time has come, and carries ends out. Set the fields of a Reconciler and
// call its SetupWithManager; it runs on the leader, with 16 workers unless the options say otherwise.
//
// It claims no pods (the gateways do) and deletes none (reconcilers/sandboxpool does). Every
// state is in the API. What is only in memory (when a binding was first seen without its
// claim on the pod, what the sweep has seen) makes a new leader wait once more, nothing else.
//
// # States, and which process changes them
//
//	Pending   no binding, or its claim is not on the pod yet
//	Starting  pod and sandbox name each other, the pod's phase is starting
//	Running   the same, and the pod's phase is running
//	Ending    the end is being carried out; the status has address and stop record
//	Ended     the pod is stopped and every gateway knows it (fencedAt)
//
// The states of pauses are in docs/design/pause.md.
//
// spec.end is written once, by a gateway, this controller or a user (package
// kubeclient/writes). spec.binding is written by gateways; this package removes a binding
// whose claim can no longer get onto its pod. Only this package writes the status, except
// lastActive. Its writes carry the resourceVersion from which they were derived, so that the
// API server refuses a write that an old view led to.
//
// end.go says how an end is carried out, sweep.go what happens to claims that no Sandbox
// owns, and status.go which claim's address the status shows.
package sandbox
