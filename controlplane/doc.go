// Package controlplane is what gateways and controllers say to each other: the
// leases by which a gateway says that it may hold routes, and the gRPC service
// by which a controller fences addresses and learns what is in use.
//
// It is not the data plane: no request of a client passes here, no route is
// ever pushed. It decides nothing about sandboxes; reconcilers call it.
//
// # Who may talk
//
// Between pods both sides show certificates ([Credentials]): a gateway hears the
// controller alone, the controller talks to gateways alone. What may go wrong:
//
//	the other side shows no good      refused at the handshake, and logged by both;
//	certificate, or speaks no TLS     no call is read. For the controller that is a
//	                                  gateway which does not answer (below)
//	a certificate expires, or its     refused from the next connection on, which is
//	authority is not trusted any more at most connectionAge away
//	a file is replaced                in force for the next connection
//	a file is unreadable or makes no  logged; the one before stays in force, and
//	sense                             expires as it says
//	no files are given                unix sockets alone, which have a file mode; TCP
//	                                  is refused at the start, on both sides
//
// # Gateway side
//
// A [Server] serves [Fencer] and [ActivitySource] to controllers. A
// [Membership] keeps the gateway's Lease. Its states, changed by the goroutine
// of Start alone (and finally by Leave or Abandon):
//
//	joining   no lease; writes it (create, or overwrite of another holder)
//	listing   lease written; OnJoin runs; the lease is renewed meanwhile
//	serving   OnJoin returned nil: Held is true until the lease's time is up
//	losing    holder overwritten, lease deleted or its time up, or a renewal's
//	          resourceVersion is older than the one before: Held is false;
//	          OnJoin is stopped, OnLost drops all routes and waits for the
//	          handlers in flight; then the epoch is raised → joining
//	left      Leave was called: Held stays false; OnLost, then the lease is deleted,
//	          which says that neither routes nor streams are left here
//	abandoned Abandon was called, since streams may be left: Held stays false; OnLost,
//	          and the lease counts its time out
//
// A step that fails is tried again; none is skipped. While the API server is
// away a gateway serves until its lease is up and then answers 503 until it has
// rejoined. A renewal that is answered after that does not revive the lease:
// the controller may have counted it as over meanwhile.
//
// # Controller side
//
// A [Directory] knows which gateways must be asked: those in a live list of
// leases, and those whose lease vanished without a clean stop, each until the
// lease's duration and a grace after the Directory last saw a renewal. A
// [Client] asks all of them. The states of a gateway, as a Directory sees it:
//
//	live     renewed, or within lease and grace: owes fences, is asked about use
//	expired  its lease is over, its pod is not: it routes nothing any more and owes
//	         no fence, but requests that its Envoy took before may still be open. It
//	         is asked about use alone, and its lease is kept, so that the next
//	         controller asks it as well
//	ended    its pod is over, or a list of pods made after the lease's end lacks it;
//	         or it names no pod: asked no more, its lease is deleted
//
//	live ─lease and grace, and sealed─▶ expired ─pod over or gone─▶ ended
//	live ─pod over, or the lease ends and it names no pod─▶ ended
//	expired, ended ─renewal, new holder─▶ live
//
// Sealed: the API server has said that the holder is overwritten or that the lease is
// gone, so that no renewal of that holder succeeds. The Directory overwrites it by name
// when its time is over, and when no list shows it any more; while that write fails the
// gateway is live.
//
// What an expired gateway may be:
//
//	alive, without the API server    it answers: its Envoy's streams count as ever
//	alive, reached by nobody         unanswered: nothing is released for idleness
//	dead or not to be started,       unanswered, until its process is back or its pod
//	beside an Envoy that lives       is deleted
//	dead with its pod or node        the kubelet says so, or the pod is gone: ended.
//	                                 A pod on a lost node stays until somebody
//	                                 deletes it or the node; until then unanswered
//	a pod deleted with no grace,     ended at the lease's end: who deletes it so says
//	which runs on                    that nothing of it runs
//
// A gateway that owes a fence settles it by
//
//   - acknowledging it, under the holder that was noted or a newer epoch of the
//     same instance (the same process, thus the same route cache);
//   - showing a newer holder of its own making in its lease: it dropped its
//     routes before it wrote that, and has listed since;
//   - a clean stop;
//   - the end of its pod, as the kubelet has confirmed it (podOver);
//   - the end of its lease.
//
// A gateway that owes a fence and keeps silent while others acknowledge gets its holder
// overwritten ("revoked:" before the old one), so that one that reaches the API server and
// not the controller rejoins, which settles what it owes. That makes it serve nobody
// for a moment, so it is done to few gateways at a time; the fence stays open
// meanwhile (see revocations).
//
// An idle release is asked of all gateways as well ([Client.PrepareRelease]): each
// holds the claim's new requests and says whether it is in use. One that does not
// answer calls the release off. What a gateway that goes had not told yet raises
// the floor that idle time counts from.
//
// What a gateway owes is noted from the first live list made after Fence was
// called. Who joins later has listed after the end was written and owes nothing.
package controlplane
