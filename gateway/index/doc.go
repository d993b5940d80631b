// Package index is what this gateway knows of pods, sandboxes, pools and their
// templates from its own watches, and the live reads for what it does not know.
// Of pods and sandboxes it keeps compact records: there are many of them.
//
// It is not a cache of typed objects, serves nobody else's reads and writes
// nothing. The gateway composes it: extproc resolves through it, and its Hooks
// feed the route cache, the schedulers, the activator and the registry of use.
//
// # Safety
//
// One pure function, decide, turns a sandbox and a pod into an Answer. Only a
// pod that names the sandbox and is named by it, at its fenced address, running
// and not being deleted, gives a Route. Pods and sandboxes come by independent
// streams, each behind by a time of its own, so the pair may be of different
// ages. That is safe: a Route carries the resourceVersion of the pod record that
// it was made from, and the route cache refuses it if a fence is newer. The
// lagging sandbox stream can only make an answer late, never another pod's.
//
// # Order
//
// Each stream is applied by one goroutine (its Reflector's): first the record
// changes, then the hooks for the change are called, then the next event. PodsSeen
// comes after the hooks of every pod event up to its resourceVersion, bookmarks
// and lists included. Objects that are missing from a later list cause the same
// hooks as deleted ones. A resolve that reads a record before it changed and
// caches its route after loses against the hook, by the cache's tokens.
//
// # States
//
// An Index is started once, is synced when each stream has had its first list
// (always a consistent one), and stays so: a broken watch is resumed or listed
// anew. Relist makes all start over, for a gateway that rejoins. A list of pods that is
// older than what was seen is of an API server that has gone back: it is applied, the
// hook PodsRewound drops what was concluded before, and the next list counts. mu guards
// the records; records are immutable. When the API server is away the index goes
// stale and says nothing of it; what keeps that safe is the gateway's lease.
package index
