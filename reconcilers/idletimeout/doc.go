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
//     of an open but silent connection can be almost that old. For them all
//     gateways are asked once more, and who was used meanwhile is none.
//  4. The end is written testing the claim. A refused write means that the
//     sandbox is another's by now, or has ended.
//
// Between 3 and 4 lies a write's time in which a request may come in; it is
// answered by a sandbox that ends. (The two-step release closes this.)
//
// A failed step leaves nothing half done: the next check starts anew. What is
// kept in memory is the first sight of each claim and when lastActive was last
// written; a new leader starts without and so waits at least a timeout more.
// All state belongs to the one goroutine of Start.
package idletimeout
