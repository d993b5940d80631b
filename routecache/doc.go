// Package routecache maps a sandbox ID to the pod that backs it: an LRU that
// never gives a route away after its address was fenced. Make a [Cache] with New, answer
// each request as the loop below does, and call Fence before an address gets another owner.
//
// It is not the truth: it knows nothing of Kubernetes, reads nothing by itself
// and may forget any route at any time. The request path (package extproc)
// reads it, the resolvers fill it, the watch (package index) takes ended
// sandboxes out, and the control plane fences addresses.
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
// The states of a route and of an address stand with Cache, and why a fence holds with
// its method Fence.
package routecache
