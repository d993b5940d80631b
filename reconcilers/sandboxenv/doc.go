// Package sandboxenv keeps the member pools of SandboxEnvs: it makes the pools that
// an env names for this cluster, brings them back in line with it, drains those that
// it names no more, and writes the env's status. Set up a SandboxEnvReconciler with a
// manager; reconcilers.Setup does.
//
// It decides neither how many pods a pool has (the env's replicas say that, which
// package autoscaler writes) nor where a claim goes (gateways do).
//
// # A member's pool
//
//	state         what is so                              what the reconciler does
//	missing       no pool of that name                    makes it, owned by the env
//	own           the env is its controller               patches what differs
//	adopted       it was there before, and owns the env   nothing: the pool is the truth
//	foreign       a pool of another env or cluster, or    nothing; the member is Inconsistent
//	              of none
//	draining      own, and the env has no such member     gives it no replicas and the mark draining;
//	                                                      deletes it once it has no pod at all
//
// The UID and resourceVersion of the pool that was read are preconditions of every
// write. A conflict means that the cache was behind: the env is looked at again, and
// its status is not written from what was read. A step that fails is done again by the
// next look, 12 s later at the latest: each look begins from the objects alone, and
// nothing is remembered between two.
//
// # Draining
//
// Deleting a pool ends its sandboxes, so a member's pool is deleted only when it has no
// pods. Gateways claim nothing from a pool with the mark. A claim that was on its way
// lands on a pod that exists, or not at all, since the pool with the mark makes none. That
// it has seen the mark and has no pods left is said by its own reconciler, which
// alone knows what it has made and not seen yet: the condition Available has the reason
// Drained, for the pool's generation.
//
// Deleting an env deletes its own pools by garbage collection, and with them their
// sandboxes, as deleting a pool does. An env that is being deleted gets no pools.
//
// # Several clusters
//
// An env names pools by cluster ID. A controller writes the entry of its own ID, in the
// spec and in the status, and leaves the others as they are. Conditions and totals
// follow from the spec and from the entries of all clusters alone, so that two controllers
// that see the same env write the same.
package sandboxenv
