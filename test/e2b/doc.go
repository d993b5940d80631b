// Package e2b runs E2B's real SDKs, of several versions, against the whole of
// Sandlane (test/stack) through Envoy. python/cases.py and js/cases.mjs run
// the cases of the files cases_… beside them; the tests here install each SDK from its lock file into the
// user's cache folder, start the script, and compare its answers with the list
// of features: a case that is missing fails like one that went wrong.
//
// Around them stand what no feature of an SDK shows: two teams that see nothing of
// each other, by every operation of the REST API's document (teams_*); fifty
// clients that make a thousand sandboxes (storm); commands past the idle timeout
// and through a restart of Envoy or the gateway (life); and Schemathesis, whose
// requests follow and break the document (schema).
//
// `go test ./test/e2b -update` writes the table of docs/e2b.md from what the
// tests saw. It needs root, node with npm, and python3 with venv.
package e2b
