// Package gateway puts a gateway process together: the ExtProc server, the
// route cache, the index with its watches, the claim schedulers, the lease and
// the control-plane service, and the HTTP server for metrics and health.
//
// It decides nothing by itself. Each part declares what it needs of the others;
// the adapters here (resolver, activator, keys, pools, activity) translate one
// part's words into another's, so that extproc and controlplane do not know
// each other. `sandlane gateway` calls it.
//
// # Start
//
//	control-plane server listens → lease written → consistent lists of pods,
//	sandboxes and pools, keys and tokens → lease held → ExtProc is ready
//
// The sockets listen from the start: until all is well ExtProc answers 503 and
// its health says NOT_SERVING. The API server may be away: each step is tried
// until it succeeds, and the process stays.
//
// # Stop
//
// When the context ends: not ready → activations are refused and those under
// way settle → ExtProc answers what it holds and stops → the lease is deleted,
// which says that no route is left → the control-plane server stops. Envoy is
// drained before, by whoever stops both.
//
// If any part fails the process stops in the same order and returns the error:
// a gateway with half its parts would answer from what it cannot keep current.
package gateway
