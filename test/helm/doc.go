// Package helm tests the chart (charts/sandlane) on a real node. TestChart is the life
// of one installation: what its values render to, `helm test`, E2B's Python SDK and a
// first request against it, an upgrade while a sandbox hibernates, and an
// uninstallation. TestNode is what happens to one: pods that break, processes that are
// killed, rollouts, new keys and certificates, pulled images, enforced policies, the
// CRDs of an older chart; it also times claims. TestFastPath is an Envoy that answers
// hits by itself, TestEgress is egress by name, and TestUpgrade goes from one release to the
// next and back. The package has no code of its own. `make helm-test` and `make
// node-test` run it (hack/helm-test.sh), which build what it needs and say where that
// is; it needs root.
//
// A test runs outside the node's network. For what must run inside and longer than a
// command (WebSockets, watches, the test's network plugin) the test binary is started on the
// node as a client (client_test.go).
//
// ROADMAP.md has what is not tested.
package helm
