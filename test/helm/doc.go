// Package helm tests the chart (charts/sandlane) on a real node: what its values
// render to, an installation, E2B's Python SDK and a first request against it, an
// upgrade and an uninstallation. It has no code of its own. `make helm-test` runs
// it (hack/helm-test.sh), which builds what it needs and says where that is; it
// needs root.
//
// What it does not test stands in docs/install.md.
package helm
