// Package e2b runs E2B's real SDKs, of several versions, against the whole of
// Sandlane (test/stack) through Envoy. python/cases.py and js/cases.mjs hold
// the cases; the tests here install each SDK from its lock file into the
// user's cache folder, start the script, and compare its answers with the list
// of features: a case that is missing fails like one that went wrong.
//
// `go test ./test/e2b -update` writes the table of docs/e2b.md from what the
// tests saw. It needs root, node with npm, and python3 with venv.
package e2b
