// Package sandbox carries a Sandbox through its life: it writes its status,
// ends it when its time has come, and alone carries an end out.
//
// It is not the one who claims (the gateways do) nor the one who deletes pods
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
// # Carrying an end out
//
//  1. Capture: address and stop record, from a live read of the pod. The ledger
//     knows the address first. If the status does not have the address of this
//     claim yet (it never ran), it is written now, with status Ending.
//  2. Stop: pod to stopping, testing the claim, or phase idle and no claim;
//     either way no claim PATCH can land any more. The stop record is written to
//     the pod, whose finalizer goes unless its pool may use it again. Refused: the
//     pod has moved on, look again from 1.
//  3. Fence(address, resourceVersion of that write, or of a pod list that lacks
//     the pod), beside the workers; the answer asks for a look. Unanswered: asked
//     again after 1, 2, 4 … 15 s. An end that waits for gateways reads nothing;
//     after 200 ms it writes status Ending with what was captured, so that the
//     pool reconciler can delete the pod.
//  4. Ended: status Ended with all of that and fencedAt; then the ledger.
//  5. The record stays for its TTL; then it is deleted. A deleted Sandbox keeps
//     its finalizer until it is Ended and address.Hold has passed, so that a new
//     controller learns from the API what its predecessor knew.
//
// A crash between any two steps leaves a state from which the next process does
// the same step again; each is idempotent. After 2 the stop record is the pod's;
// if the pod goes as well before 4, only why and where it stopped is known. A sandbox that never had a pod skips
// 2 and 3.
//
// # A new binding after a claim that landed
//
// A claim may land on a pod whose address has changed: nobody routes to it, its
// pod is stopped, and the sandbox gets another binding. status.address is then
// that of the former claim (addressClaim says so) and is no reason to end the
// sandbox. Nor does it name the current claim's address: a pod's is recorded
// only while it can be reached there, or at the end. The former pod carries its
// claim, so it shows the address and keeps its finalizer until that claim is
// fenced, which the sweep does: what was recorded may be overwritten before.
//
// # Sweep
//
// A claimed pod that no Sandbox names, or only one that is Ended, in two live
// looks a minute apart, is stopped and fenced; so is a claim whose pod and
// Sandbox were both removed by force. This is what lets such a pod's finalizer
// go. Only what the cache shows to be so is looked at alive (suspects): whether a
// claim has an owner depends on the pods that name an ID and on the Sandbox of
// that ID, and each change of those is a look at the ID.
package sandbox
