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
// spec.end is written by anyone, once (package ending). spec.binding is written
// by gateways; this package removes one whose claim can no longer land. The
// status is written here alone, but for lastActive; writes carry the
// resourceVersion they were derived from, so an old view changes nothing.
//
// How an end is carried out stands in end.go, what happens to claims that no Sandbox
// owns in sweep.go, and whose address the status shows in status.go.
package sandbox
