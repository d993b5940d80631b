// Package poststarthooks runs the hooks of a pool's template in a claimed pod:
// commands in its containers and requests to its address. Run takes the pod and the hooks,
// and returns nil once all are done, or the failure of one that may not fail; a [Cluster]
// is the [Runner] for pods of an API server.
//
// It writes nothing to the API and decides nothing about the pod; its caller,
// reconcilers/sandboxpool, does, from the error of Run. Hooks run in order, each
// with its own timeout, retries and failure policy, all within the caller's
// context. A process that dies in between leaves no trace, and its successor runs
// all of them again: hooks run at least once for a claim.
package poststarthooks
