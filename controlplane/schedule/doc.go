// Package schedule claims warm pods: one PoolScheduler for each pool and
// gateway turns requests for a sandbox into pods that carry its claim, with one
// write a claim. A Set keeps the schedulers of all pools: feed it with Offer and
// Forget, run it, and Enqueue a ClaimRequest at the PoolScheduler that Get returns.
//
// The claim PATCH itself (Claim, ApplyClaim) is exported, for every process that
// has read a binding may send it: the owner of an activation, a follower, another
// gateway, the sandbox reconciler.
//
// It is not the index (which feeds it idle pods by Offer and Forget), does not
// write Sandboxes (callers do, in ClaimRequest.Bind and Unbind), and never
// lists pods. package activation and the REST API call it; reconcilers use
// ApplyClaim alone.
//
// # States of a pod record
//
//	ready ──picked──▶ held ──claim over──▶ cooling ──TTL, still listed──▶ ready
//	  │                 └──given back, still listed──▶ ready
//	  └──Forget──▶ (gone)      held, cooling ──no longer listed──▶ (gone)
//
// held and cooling together are the reservations. A held pod belongs to one
// attempt, which is bounded by its own timeouts; a cooling one waits
// for the watch to say that it has left idle, at most the reservation TTL. The
// record is listed while the feed's last word was Offer; a pod that is still
// listed at the end of its reservation is ready again, so no stock is lost, and
// claiming it is safe, since every claim tests the pod's phase and UID.
//
// # States of a request
//
//	waiting ──a pod is picked──▶ claiming ──applied──▶ answered with the pod
//	   ▲                            ├──pod lost, time left──▶ waiting (first in line, new claim ID)
//	   └────────────────────────────┘
//	waiting ──deadline, Ctx done, Shutdown──▶ answered with an error
//	claiming ──deadline──▶ answered with ErrDeadline; the claim settles by itself
//
// Tenants take turns in the queue; within one it is first come, first served. At
// most maxClaims requests are claiming at a time, the others wait. A pod whose
// images fit already is picked before one that has to be changed.
//
// Whether a request is still wanted is asked when it is picked, and once more
// before its Bind: one whose client has left, or whose deadline has come, writes
// nothing and takes no pod.
//
// In the code a request is an entry (entry.go: arm, answer, undo, again) and each
// pod that is tried for it an attempt (attempt.go: bind, land, settle, conclude).
//
// Only the Run goroutine moves a request from waiting to claiming. It is answered
// once, under the mutex. The mutex guards all queues and is
// never held over a call to the API server or to Bind. A claim runs on contexts
// of its own: a client that leaves while its claim is on the way does not undo
// it.
//
// # Several gateways
//
// Each has its own scheduler of a pool, and they know of each other only what
// the watch shows: that pods leave idle. So that they seldom try the same pod at
// the same time, each begins at a place of its own in the queue (Set.Place, told
// by the controller with its polls; before the first, a seed of its name). The
// place decides nothing else: every gateway reaches all stock that it sees. When
// stock comes one by one to several gateways that wait for it, they do meet; the
// gateway that loses tries the next pod, once the watch has shown it that the first is lost
// (or viewLag is over): what others claimed before that is out of its view then.
//
// # What happens when a step fails
//
//	Bind: ErrBindLost        pod given back, ErrBindLost
//	Bind: any other error    pod given back, that error
//	PATCH: 422 with causes   pod given back, ErrInvalid
//	PATCH: 422 without       live read: our claim = success, or ErrClaimOver if its
//	                         pod is ending (the binding stays); taken = next pod;
//	                         idle = settled as below, the second time ErrRefused
//	PATCH: 404               next pod
//	PATCH: 409               the same pod again, a few times (API server's own races),
//	                         then settled as below
//	PATCH: 429               waited out, Retry-After honoured, the same pod again
//	PATCH: 403               pod given back, ErrForbidden
//	PATCH: not sent          waited out, the same pod again
//	PATCH: anything else     ambiguous: the pod is written to stopping, testing its
//	                         UID and phase idle. Applied: the claim can no longer
//	                         land, next pod. Test failed: read; our claim as
//	                         above, else next pod. Not to be settled: ErrUnavailable, and the
//	                         binding stays for the next request.
//	answer without a fenced  next pod; once Bind has named that one, or Unbind was
//	address                  called, the pod is ended (testing the claim)
//
// A claim that this scheduler did not apply may have been applied by another process
// that saw the binding. So a request that fails for good after Bind succeeded has
// its Unbind called only when the pod is known to be taken, gone or stopped, or
// the claim is ErrInvalid. Else the binding stays: others complete it, or replace
// it when they find its pod lost.
package schedule
