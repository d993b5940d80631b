// Package claims says whose a connection from a pod's address is. A [Table] is told of pods
// by a watch (See, Gone, PodsSeen) and of ends by a controller (Fence); a [Door] accepts
// connections, each with an [Arrival], whose Wait gives the claim that it belongs to, as a
// [Use]. What serves the connection asks the Use before each thing it does for the claim,
// and calls Done when it does nothing more.
//
// It reads no API server, no byte of a connection and holds no secret. The states of an
// address, and what happens when a step fails, stand in docs/design/egress.md.
package claims
