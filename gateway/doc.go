// Package gateway puts a gateway process together: the ExtProc server, the
// route cache, the index with its watches, the claim schedulers, the lease and
// the control-plane service, and the HTTP server for metrics and health.
// `sandlane gateway` fills Options and calls Run, which returns when the process has
// stopped in order.
//
// Each part declares what it needs of the others, as an interface that another part's type
// satisfies as it is. Which one stands in wiring.go, control.go (the lease, the service for
// controllers) and api.go (the REST API). ownview.go and ready.go have what takes several
// parts: what this gateway knows of a sandbox, and what makes its pod ready.
//
// In which order the parts start stands in gateway.go, how they stop and what may go
// wrong then in drain.go. fastpath.go waits, before the lease is written, until Envoy answers
// from no table of routes that an earlier process has left.
package gateway
