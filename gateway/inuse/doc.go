// Package inuse knows which sandboxes are in use at this gateway: what its
// handlers note, what is parked, and what Envoy counts as open requests. Get the use of
// a claim from the [Registry] and put it on the claim's route, whose hits touch it; Park
// each request that waits. An [EnvoyPoller], once started, notes as used what is open at Envoy.
// LastActive returns what has been used since the last report, and Hold begins to hold a
// claim's requests while its release is prepared.
//
// It decides nothing: the controller asks for a report (through package
// controlplane), and the idle-timeout reconciler counts. Uses stand beside the
// index and live until their claim is over; the route cache only points at them,
// so an evicted route loses nothing.
//
// report.go says when nothing is known, streams.go which claim a late report of Envoy is for,
// hold.go how requests are held while a release is prepared, registry.go what states an entry
// has.
package inuse
