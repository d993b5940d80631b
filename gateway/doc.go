// Package gateway puts a gateway process together: the ExtProc server, the
// route cache, the index with its watches, the claim schedulers, the lease and
// the control-plane service, and the HTTP server for metrics and health.
//
// It decides nothing by itself. Each part declares what it needs of the others;
// the adapters here, a file each (resolver, activator, keys, apiKeys, pools,
// quota, usage, claims, holds, releaser, tokens, endings), translate one part's
// words into another's, so that extproc and controlplane do not know each other. `sandlane gateway` calls it.
//
// # Start
//
//	control-plane server listens → table of the fast path settled → lease written → consistent lists of pods,
//	sandboxes and pools, keys and tokens → lease held → ExtProc is ready
//
// The sockets listen from the start: until all is well ExtProc and the REST API
// answer 503, and ExtProc's health says NOT_SERVING. The API server may be away:
// each step is tried until it succeeds, and the process stays.
//
// An Envoy that a former process began to drain is ended at the start; whoever
// runs it starts it again, best after this process is ready.
//
// # Stop
//
// When the context ends (SIGTERM), or a controller asks for a drain:
//
//	serving ─▶ draining ─▶ settling ─▶ leaving ─▶ stopped
//
//	draining  not ready, health NOT_SERVING, but every request is answered, first
//	          requests too. Envoy closes each connection with its next answer and
//	          takes new ones for DrainDelay more; then it stops listening. It ends
//	          when nothing is open any more, when DrainGrace is over, when
//	          told to hurry, or when Envoy is gone. Then Envoy is told to quit,
//	          with what is still open: after the lease is deleted nobody could
//	          say that it is in use.
//	settling  the REST API takes no more requests; activations are refused and
//	          those under way settle; then ExtProc answers what it holds and stops,
//	          and what failed creates have left is undone
//	leaving   the lease is deleted, which says that no route is left and nothing
//	          open, so Envoy must be known to be gone; if it is not, routes are dropped
//	          and the lease stays. Before it is deleted a controller is told the last
//	          uses, if Envoy was looked at just before it was told to quit. Then the
//	          control-plane server stops
//
// What may go wrong:
//
//	Envoy is not there, or ends      nothing to wait for: settling. So it is when
//	                                 all of a machine is stopped, Envoy first
//	Envoy refuses a step             logged; the other steps follow, within the
//	                                 grace. New connections that could not be turned
//	                                 away may be reset when it stops listening
//	Envoy cannot be told to quit,    logged; the lease stays, since its streams are
//	or does not                      in use. It answers 503 until the next process
//	                                 finds it draining, and ends it
//	the lease is lost                requests are answered with 503, as ever
//	this process is killed           the lease counts its time out; the next
//	                                 process ends the half-drained Envoy
//	the lease cannot be deleted      logged; it counts its time out
//	a part fails                     no draining, since ExtProc could not answer:
//	                                 the other steps, and the error is returned.
//	                                 A gateway with half its parts would answer
//	                                 from what it cannot keep current. Envoy stays
//	                                 with its streams, and so does the lease: the
//	                                 next process is asked about them
//
// On a cluster Envoy must outlive this process: it runs as a restartable init
// container, which is stopped after the others, or delays its own SIGTERM by a
// preStop hook. If both get the signal at once Envoy cuts what is open. Both
// containers run as one user, without which newcomers cannot be turned away.
package gateway
