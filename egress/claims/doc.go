// Package claims says whose a connection from a pod's address is. A [Table] is told of pods
// by a watch (See, Gone, PodsSeen) and of ends by a controller (Fence); a [Door] accepts
// connections, each with an [Arrival], whose Wait gives the claim that it belongs to, as a
// [Use]. What serves the connection asks the Use before each thing it does for the claim,
// and calls Done when it does nothing more.
//
// It reads no API server, no byte of a connection and holds no secret.
// docs/design/egress.md has a connection's whole way.
//
// # States of an address
//
//	            pod seen, barrier passed             claim seen
//	unknown ─────────────────────────────▶ open ──────────────────▶ claimed
//	   ▲                                    │ fence, pod gone           │ fence, pod gone, claim over
//	   └────────────────────────────────────┴───────────────────────────┘
//	any ──lease lost──▶ unknown
//
// The pod watch opens an address for a pod, gives it the pod's claim with its policy, and
// closes it. A claim counts once the sandbox was seen that names the pod too; rules that
// cannot be read deny everything. A fence {address, rv} closes an address, and refuses pod
// objects older than rv from then on. While the lease is not held every address is unknown.
// When a claim's policy changes, the connections that it now forbids are closed; the others
// follow it from their next request on.
//
// # The end of a claim
//
// When an address closes or gets another claim, the state changes first, so that no
// connection finds the former claim; then its connections are closed, on both sides; then
// those that serve them have returned. Only then is a fence acknowledged.
//
// # A connection belongs to the time in which it was accepted, not in which it is served
//
// A sandbox's last connections may stand in the kernel's queue while its address gets the
// next claim, if the process stood still. Served then, a former sandbox's request would carry
// the next one's credential. So an address opens only behind a barrier: the process connects
// to each of its own listeners and waits until it has accepted that connection; queues are
// first in, first out, so what was there before has been accepted too, as of an unknown
// address. That happens once for each time a pod is seen at an address, before its claim, and
// delays no sandbox. A connection that was accepted while the address was unknown is closed,
// since nothing tells which pod's it is; one accepted while it is open waits for the claim.
//
// # When a step fails
//
//	the pod watch is late                         a new claim is refused after 2 s, at once
//	                                              if its pod was never seen idle. A claim
//	                                              that is over is served until the fence,
//	                                              which comes before the address is used
//	                                              again
//	a fence finds a connection that does not end  it is not acknowledged; the controller
//	                                              asks again, and the address serves nobody
//	the API server is away                        known claims go on until the lease is
//	                                              over, 15 s at most
//	the lease is lost                             all addresses are unknown and their
//	                                              connections closed; the process joins
//	                                              again and lists before it serves
//	the process is killed                         its connections end with it; its lease
//	                                              runs out, or its pod is confirmed dead
//	it stands still                               its fences are not acknowledged; when it
//	                                              goes on it finds its lease lost before it
//	                                              looks at a claim, since every look asks
//	                                              for it
//	a barrier fails                               the address stays unknown, and the
//	                                              barrier is tried again at the pod's next
//	                                              event
package claims
