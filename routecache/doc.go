// Package routecache maps a sandbox ID to the pod that backs it: an LRU that
// never gives a route away after its address was fenced.
//
// It is not the truth: it knows nothing of Kubernetes, reads nothing by itself
// and may forget any route at any time. The request path (package extproc)
// reads it, the resolvers fill it, the watch (package index) takes ended
// sandboxes out, and the control plane fences addresses.
//
// # States
//
// A route is absent, then cached (Put), then absent again: evicted, dropped,
// invalidated or fenced. A shard's mutex guards its LRU, its list of
// addresses and its token generations; all three change together under it.
//
// An address is open, refused (a fence came, the pod watch has not passed its
// resourceVersion), or lifted (the watch has passed it; only resolves that
// began before that moment are still refused). Fence refuses, PodsSeen lifts.
// Rewind refuses all addresses, and the next PodsSeen opens them.
// The lock order is shard, then refusals.
//
// A handler is in flight between Enter and Leave, and may answer only from a
// Get made inside that flight:
//
//	for {
//		f := cache.Enter()
//		if r := cache.Get(id); r != nil {
//			answer(r)
//			f.Leave()
//			return
//		}
//		f.Leave()
//		token := cache.Begin(id)
//		cache.Put(token, resolve(id))
//	}
//
// # Why a fence holds
//
// Fence first refuses, then drops, then waits. A Put checks the refusals inside
// its shard's lock: either it sees the refusal, or it is done before Fence takes
// that lock and drops what was put. After the drop no Get returns the route, so
// only handlers that entered before it can still answer from it, and those are
// waited for.
//
// An Observer shows routes to others (package fastpath: to Envoy). It is told of every
// change under the shard's lock, so that what it shows is always cached, and a fence
// waits for those who look there after it has waited for the handlers.
//
// A Fence that fails (its context ended first) has still refused and dropped;
// it has only not been acknowledged, and the caller asks again.
package routecache
