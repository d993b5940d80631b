// Package extproc is the gateway's ExternalProcessor: Envoy asks it, once per
// request, which pod to send the request to. Fill in [Options] with what stands behind the
// interfaces of interfaces.go, make a [Server] with NewServer, and start it: it listens on
// a unix socket for an Envoy that package envoy has configured. Drain refuses new activations.
//
// It parses the target (target.go), refuses E2B's control paths, takes the
// route from the route cache or resolves it, authorises, activates a sandbox
// that has no running pod, notes that the sandbox is in use, and answers with
// dynamic metadata. It never sets a header that picks an upstream. It reads no
// Kubernetes object and writes none: what it needs is behind the interfaces in
// interfaces.go, which package gateway fills. Envoy calls it over a unix
// socket, where it also takes Envoy's access log (upstream failures, ends of
// long streams) and answers health checks.
//
// # A request's states
//
// Each ext_proc stream is one request and one goroutine, which alone changes
// its state:
//
//	received ──hit──────────────────────────────────────▶ answered
//	    └─miss─▶ resolving ──▶ (authorised) ─▶ parked ─▶ resolving …
//
// A route is only ever answered from a Get made inside a flight of the cache
// (routecache.Enter): a fence is acknowledged when the flights that began
// before it have ended, so after that no answer has the route it drops.
// A parked or resolving request is in no flight and takes its route anew. The
// lease is looked at after Get and before Send, inside the flight.
//
// What fails ends in an answer, never in a default upstream: a known error
// becomes an E2B answer, a lost lease a 503, a panic or a broken message a gRPC
// error, which Envoy turns into an error because it fails closed. A client that
// leaves cancels the stream's context; the handler then returns without an
// answer. The handler never returns nil before it has answered.
package extproc
