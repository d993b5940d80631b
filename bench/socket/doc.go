// Package socket measures the ExtProc server alone: over its unix socket, without
// an Envoy, with 100,000 routes in memory, in turns with the do-nothing server.
// bench runs it.
//
// The server is Sandlane's own (package extproc) with the real route cache and activity
// registry, in a process of its own (Serve). Nothing is behind the route cache, since every
// request is a hit. One connection carries all streams, like that of one worker of Envoy.
// The client sends bytes that were encoded before and decodes nothing, to need little CPU;
// it still needs more than the server, so that CPU per request says more here than
// requests/s.
//
// At the end it measures a whole gateway with an API server that has 100,000 sandboxes: the
// time until it serves, and its memory once each sandbox has a route.
package socket
