// Package sandbox carries a Sandbox through its life: it writes its status,
// ends it when its time has come, and alone carries an end out.
//
// It neither claims (the gateways do) nor deletes pods
// (reconcilers/sandboxpool does). The controller (leader) runs it, with 16
// workers or more. Every state is in the API; what is kept in memory (when a
// binding was first seen without its pod, what the sweep saw) only makes a new
// leader wait once more.
//
// # States and who may change them
//
//	Pending   no binding, or its claim has not landed
//	Starting  pod and sandbox name each other, the pod's phase is starting
//	Running   the same, running
//	Ending    the end is being carried out; address and stop record are on the status
//	Ended     the pod is stopped and every gateway knows it (fencedAt)
//
// spec.end is written once, by a gateway, this controller or a user (package
// kubeclient/ending). spec.binding is written by gateways; this package removes one whose
// claim can no longer land. The status is written here alone, but for lastActive; writes
// carry the resourceVersion that they were derived from, so an old view changes nothing.
//
// end.go says how an end is carried out, sweep.go what happens to claims that no Sandbox
// owns, and status.go which claim's address the status shows.
package sandbox
