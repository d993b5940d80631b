// Package envoy renders the Envoy configuration of a gateway from
// go-control-plane types, finds an Envoy binary, and speaks to a running
// Envoy's admin socket. Render with [Bootstrap] and [YAML], find the program with [Find],
// start it with [Args], and ask it through an [Admin].
//
// One function, Bootstrap, serves the sidecar on a cluster and the Envoy of
// `sandlane up`; they differ in Options alone. What the configuration must do
// is stated in docs/design/design.md (5, "Request path") and tested here against
// the real binary.
//
// It is not a control plane: the configuration is static, routes are decided
// per request by ExtProc. It does not watch over the process either (see
// local/supervise). Packages gateway and local and cmd/sandlane call it.
//
// docs/design/decisions/envoy-settings.md says what it lets through, and why.
package envoy
