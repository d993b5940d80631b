// Package activation gives a sandbox a running pod because a request asks for
// it: on first request, when the sandbox is made with its binding in one
// create, or when it exists and has no pod. Many requests for one ID lead to
// one claim, also over several gateways.
//
// It is not the authorisation (extproc does that before), not the scheduler
// (package schedule picks and claims pods), and it answers nobody: it leaves a
// route in the cache, or just the facts in the API server, and its caller
// resolves again. The gateway's ExtProc server calls Activate, the index calls
// Settled.
//
// # States
//
// One flight works for all requests of one gateway that ask the same. Requests
// wait for it without a lock; it runs on a context of its own, so that a client
// that leaves undoes nothing. Only the flight's goroutine changes its state:
//
//	           ┌────────────── binding lost ──────────────┐
//	           ▼                                          │
//	start ─▶ look ──no sandbox (New), or no binding──▶ claiming ──pod runs──▶ done
//	  │        │ ▲                                     ▲     │
//	  │        │ └── woken, or a second later ──┐      │     └─pod starts─┐
//	  │        └──bound──▶ following ───────────┴──────┘ pod lost         │
//	  │                        │   ▲                                      │
//	  └─New: claiming at once  │   └──────────────────────────────────────┘
//	                           └──pod runs──▶ done
//
// In each state:
//   - look: one live read of the Sandbox. Not New, and the gateway knows a pod that
//     runs it (Known): done by that, without a read; if the pod refuses, it is read.
//   - claiming: the pool's scheduler reserves a pod, Bind writes the binding
//     (create; or JSON Patch testing what was there), the scheduler claims the
//     pod. Whoever wrote the binding owns the activation. While there is no pod,
//     and the index or a look after a second says that the sandbox has got one
//     elsewhere or has ended, the request leaves the scheduler's queue: look.
//   - following: another owns it. Read the pod; wait to be woken by the index
//     (Settled), at most a second. A second after a binding was first seen, and
//     its pod is still idle, send the claim PATCH for its owner; if the pod is
//     gone or another's, replace the binding with the next pod, as an owner.
//   - done: the pod runs; Ready makes it ready (what that is, its caller knows:
//     the gateway initialises sandboxd). It is called until it succeeds, by the
//     owner and by whoever finds the claim on its pod while following, so that an
//     owner's death leaves no pod unready; it must bear being called twice. Then
//     Put into the cache, under a token taken just before the binding was written,
//     or before the sandbox was read. A refused Put is no error: the caller
//     resolves again. Without a Ready nothing happens between claim and Put.
//
// A request with Make has a flight of its own, which ends with it: that one makes
// a sandbox with an ID that nobody else knows yet, with a Ready that nobody else
// could stand in for. Whatever its flight ends with but success, its caller ends
// what may have been made (Make.Tried).
//
// A flight whose requests have no MayClaim never enters claiming: it ends with
// ErrExists there. The claim PATCH it may send for an owner, who was allowed to.
//
// # What happens when a step fails
//
//	no such pool                        ErrPoolNotFound
//	scheduler's queue full, deadline    ErrNoCapacity
//	sandbox has ended, or is ending     ErrEnded
//	sandbox of another namespace,       ErrOtherTenant
//	pool or team
//	New, and it exists without a pod,   ErrExists: authorise again, by what it is
//	or was not made by a first request
//	no MayClaim, and no binding, or     ErrExists: authorise again, to claim
//	one whose pod is lost
//	not New, and it is gone             nil: resolve again
//	create: exists already              look at it
//	binding patch: test failed          look at it: ours = written; another's = follow
//	binding write: anything ambiguous   look at it, then write again
//	binding write: refused, and what a  wait, then write again: 50 ms, doubled up to
//	look finds allows it                a second
//	write or read: 429                  waited out, Retry-After honoured
//	write: invalid, forbidden           ErrInvalid, ErrForbidden
//	API server away until the deadline  ErrUnavailable
//	claim failed, bound pod known lost  binding removed, testing its claim ID
//	claim failed, perhaps applied, or   binding stays; the next request follows it
//	not by us but perhaps by another
//	claimed pod may not be reached      replace the binding first, then end that pod
//	bound pod carries the claim and     wait for the sandbox's end (its record says
//	is ending                           how it ran), then ErrEnded
//	Ready refuses for good              ErrUnusable; its sandbox is ended, by Ready or
//	                                    by who asked for Make: nothing is routed to it
//	Ready refuses for now               ErrNotReady, and the next request tries again
//	Ready fails otherwise               tried again; at the deadline ErrNotReady, and
//	                                    the next request tries again
//	claim is over before Ready is done  look at it
//	deadline while following            ErrNotReady
//	Shutdown                            ErrShutdown; claims under way settle
//
// A first-request sandbox whose activation failed before it ever had a pod is
// left without a binding, for the next request or its startup timeout.
package activation
