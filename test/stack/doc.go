// Package stack starts the whole of Sandlane for tests and benchmarks: it runs
// the built binary as a user would (`sandlane up -d` with a state folder and
// ports of its own), reads up.json, and talks to it through Envoy and the API
// server.
//
// It is not a fake of anything: the API server, Envoy, the gateway, the
// controller and the node are the real ones. It is called by test/e2e and test/chaos. A test
// makes pools in a namespace of its own, so the tests of a package share one stack,
// which TestMain starts with Main.
package stack
