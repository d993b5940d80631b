// Package sandboxpool keeps the pods of a SandboxPool: spec.replicas unclaimed
// ones within maxPods, and one more for each claim that waits, each moved through its
// phases by conditional writes.
//
// It is not the scheduler: it never claims a pod and never deletes one that may
// be claimed. It does not end sandboxes, but for those of a pool that is being
// deleted; it marks their pods failed, and reconcilers/sandbox draws the
// conclusion. The controller (leader) runs it.
//
// # States of a pod
//
//	warming  → idle      Ready, and its address free (package address); one that
//	                     has waited for it for 10 s is no stock meanwhile, and
//	                     keeps the address from the pod made in its place
//	starting → running   every container runs its image, Ready, hooks done
//	any      → failed    crash, restart, eviction, other address, not Ready in time
//	stopping, failed     deleted once recorded; then the finalizer goes
//	stopping → warming   recycled: see decideRecycle
//
// A claim (idle → starting or running) is the gateways' write, an end
// (→ stopping) that of reconcilers/sandbox. Every write here is a JSON Patch
// that tests UID, phase and claim as they were seen; one that is refused means
// that the pod has moved on, and its event brings it back. Deletes carry UID and
// resourceVersion.
//
// Recorded means: the pod was never claimed; or its Sandbox names it, has ended
// and has the pod's address in its status; or its claim was fenced without a
// Sandbox (see the sweep in reconcilers/sandbox). Only then FinalizerPod is
// removed. So a pod that is deleted from outside, also with grace period 0,
// stays in the API until the address it had is written down.
//
// # Scaling
//
// One decision (decideScale) says how many pods to make, to take away because
// they are too many, and to replace because of their template. It is carried out
// only while the cache shows all that this process wrote (PoolExpectations).
//
//	idle, too many ──▶ marked ──scaleDownProtection──▶ deleted
//	                     ├──claimed──▶ (the delete fails by its resourceVersion)
//	                     └──wanted again──▶ unmarked
//
// # Waiting claims
//
// Gateways say what waits (Demand), and the pool itself orders for it: no cooldown
// delays a claim that waits. A sandbox counts until its claim is seen on a pod (claims),
// so that W of them on an empty pool make W pods and the replicas, although each claim
// empties a place. A pod that was ordered (annotation sandlane.dev/ordered) stays until
// it is Ready and then idle for a minute, also when its sandbox has left; without
// maxPods a pool has at most a hundred unclaimed pods by orders. While a gateway has
// not answered nothing is deleted for being too many; that of an old template is
// replaced, and maxPods holds. With replicas 0 a pool has no stock and serves all the
// same, each time after a pod's start.
//
// # When a step fails
//
// Each reconcile starts from what is there, so a step that failed is done again,
// by whatever process leads then. What the API server refuses, and pods that
// never become Ready, make creations wait (see creationBackoff); the condition
// Degraded shows the reason in the API server's or the kubelet's words. What is
// kept in memory (trust in a template, hooks that run, plugins' verdicts, Events
// told) is begun anew by a new leader: hooks may run twice, nothing is lost.
//
// # Deleting a pool
//
// A pool has no finalizer of ours. Pods whose pool is gone, being deleted, or
// another object of the same name are drained: the sandboxes are ended, the
// others deleted. That works with and without Kubernetes' garbage collection,
// in any order, and also while a namespace is deleted.
package sandboxpool
