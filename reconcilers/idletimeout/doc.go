// Package idletimeout releases sandboxes that nobody uses, and those that do not
// start.
//
// It is not the judge of what use is: the gateways are, and tell their ages
// through LastActiveSource. It releases nothing itself: it writes spec.end, and
// reconcilers/sandbox carries it out. Absolute ends (endAt) are not its
// business. The controller (leader) runs one.
//
// # One check
//
//  1. Ask every gateway what was in use. If one does not answer or does not
//     know, anything may be in use, and nothing is released for idleness.
//  2. Idle time counts from the latest of: when this process first saw the claim
//     running (so never from before this leadership), its last use, and Floor,
//     before which some gateway's memory is lost. Only this process's monotonic
//     clock is asked.
//  3. Whoever is idle for longer than its timeout is a candidate. A timeout of
//     less than 4 s counts as 4 s (0 still means never): what the gateways know
//     of an open but silent connection can be almost that old.
//  4. Begin: a token is written on the Sandbox (spec.release), testing the claim.
//  5. Prepare: every gateway that has a lease now holds new requests of the claim,
//     then says whether the sandbox is in use. One that joins later finds the
//     token in its list and holds too.
//  6. Commit: the end is written, testing the claim and the token. Where anyone
//     says that the sandbox is in use, does not know, does not answer, or went
//     with what it knew, the release is called off: the token is taken away.
//
// So a request either comes before the hold, and is seen in 5, or waits for the
// outcome: for an answer by the sandbox that stays, or as one that has ended. A
// request that has waited two seconds takes the token away itself; then 6 is
// refused.
//
// # Startup
//
// A claim's startup counts from when this process first saw it start, on the
// monotonic clock, less what claimed-at says that was missed since the check
// before: so a step of the clock, or clocks that differ, move it by no more than
// the time between two checks. The next claim to be late sets a timer: its end
// comes to the moment, not at the next check. Before that is written the pod is
// read live, since a cache may lag behind its start. A new leader counts anew.
//
// # When a step fails
//
//	begin not answered    the next check finds the token, if any, and takes it away
//	begin refused         the sandbox is another's by now, or has ended
//	prepare fails         called off; nothing is released for idleness
//	commit refused        called off by a gateway, or ended by another
//	commit not answered   it was applied, or lands while the token stands: the next
//	                      check takes that away
//	this process ends     the next one takes the tokens away; until then gateways
//	                      do, for those whom they let wait
//
// Nobody but the one who wrote a token commits with it, and only in the same
// check: a controller that wakes up late is refused once its successor has
// looked. What is kept in memory is the first sight of each claim and when
// lastActive was last written; a new leader starts without and so waits at least
// a timeout more.
// All state belongs to the one goroutine of Start, but for the Sandboxes that the
// watch has shown since the last check (feed).
package idletimeout
