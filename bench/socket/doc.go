// Package socket measures the ExtProc server alone: over its unix socket, without
// an Envoy, with 100,000 routes in memory, in turns with the do-nothing server.
// bench runs it.
//
// The server is Sandlane's own (package extproc) with the real route cache and
// activity registry, in a process of its own (Serve); what stands behind the
// route cache is left out, since every request is a hit. One connection carries
// all streams, as one worker of Envoy's has it. The client sends bytes that were
// encoded before and decodes nothing, so that it takes little of the machine; it
// still takes more than the server, so that CPU per request says more here than
// requests/s.
//
// Last comes a whole gateway with an API server that knows 100,000 sandboxes: how
// long until it serves, and its memory once each has a route.
package socket
