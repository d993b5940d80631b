// Package helm tests the chart (charts/sandlane) on a real node. TestChart is the life
// of one installation: what its values render to, `helm test`, E2B's Python SDK and a
// first request against it, an upgrade while a sandbox hibernates, and an
// uninstallation. TestNode is what happens to one: pods that break, processes that are
// killed, rollouts, new keys and certificates, pulled images, enforced policies, the
// CRDs of an older chart; it also times claims. TestFastPath is an Envoy that answers
// hits by itself. The package has no code of its own. `make helm-test` and `make
// node-test` run it (hack/helm-test.sh), which build what it needs and say where that
// is; it needs root.
//
// A test is outside the node's network. What must be inside for longer than a command
// (WebSockets, watches, the stand-in for a network plugin) is this test binary, started
// on the node as a client (client_test.go).
//
// What it does not test stands in ROADMAP.md.
package helm
