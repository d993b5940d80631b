// Package envoy renders the Envoy configuration of a gateway from
// go-control-plane types, finds an Envoy binary, and speaks to a running
// Envoy's admin socket.
//
// One function, Bootstrap, serves the sidecar on a cluster and the Envoy of
// `sandlane up`; they differ in Options alone. What the configuration must do
// is stated in docs/design (5, "Request path") and tested here against the
// real binary.
//
// It is not a control plane: the configuration is static, routes are decided
// per request by ExtProc. It does not watch over the process either (see
// local/supervise). Callers are local and cmd/sandlane.
//
// # Decisions recorded here
//
//   - Escaped slashes (%2F) stay in the path (KEEP_UNCHANGED): servers in
//     sandboxes use them in names. Code that checks a path must decode and clean it
//     first, as ExtProc does for the control paths of port 49983.
//   - Headers with underscores pass: the servers behind are people's own, and
//     nothing of ours reads a header under a name with an underscore.
//   - Duplicate headers reach ExtProc as they came; it refuses duplicates of
//     those that address a sandbox.
//   - No client counts as internal. Every x-envoy-* header of a request is
//     removed before any filter sees it.
//   - Upstream connections are not limited in number, requests are: a request
//     that waited for a connection slot would be held for longer than MaxHold.
//     Out of file descriptors, Envoy answers 502 and goes on.
package envoy
