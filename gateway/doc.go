// Package gateway puts a gateway process together: the ExtProc server, the
// route cache, the index with its watches, the claim schedulers, the lease and
// the control-plane service, and the HTTP server for metrics and health.
// `sandlane gateway` fills Options and calls Run, which returns when the process has
// stopped in order.
//
// Each part declares what it needs of the others. The adapters (resolver.go, activator.go
// and others, a file each) translate between the types of one part and another's, so that
// extproc and controlplane do not know each other.
//
// In which order the parts start stands in gateway.go, how they stop and what may go
// wrong then in drain.go. fastpath.go waits, before the lease is written, until Envoy answers
// from no table of routes that an earlier process has left.
package gateway
