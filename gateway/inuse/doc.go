// Package inuse knows which sandboxes are in use at this gateway: what its
// handlers stamp, what is parked, and what Envoy counts as open requests.
//
// It decides nothing: the controller asks for a Report (through package
// controlplane), and the idle-timeout reconciler counts. Stamps stand beside the
// index and live until their claim is over; the route cache only points at them,
// so an evicted route loses nothing.
//
// # Unknown is active
//
// A Report says Known only while the last tick read all of Envoy's counts, and
// that tick was not long ago. A tick that fails, a poller that is stuck, has not
// begun or has stopped: not Known, and nobody may take a sandbox for idle.
//
// # Holds
//
// While the controller prepares an idle release, the claim's requests are held:
// Hold, then a look at what is in use (Refresh, InUse), and only then the answer
// to the controller. A handler touches the stamp, then looks at Held. So a
// request is either seen by the look, or waits. A hold has the token of its
// release and goes with it (Lift), or with the claim (Over).
//
// A request that waits for a live read has no claim to stamp yet, and is not
// authorised. It is noted by its ID (Resolving) until it is answered: the look sees
// it, so a release that is prepared meanwhile is called off; reports do not.
//
// # States of an entry
//
// An entry (sandbox ID, claim ID) comes with Stamp, is untouched until its first
// touch, and goes with Over, for good: a Stamp for a claim that is over already
// is a loose one that nobody reports. What may come long after the claim's end asks
// for an entry that is there already (Existing). The Registry's mutex guards the entries and
// what is parked; stamps are touched without it.
package inuse
