package gateway

import (
	"time"

	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/gateway/inuse"
	"github.com/sandlane/sandlane/routing"
)

// usage adapts the registry of use to extproc.Activity and controlplane.ActivitySource.
type usage struct {
	*inuse.Registry
	index claimIndex
}

// claimIndex says which claim is a sandbox's. The index satisfies it.
type claimIndex interface {
	Synced() bool
	Resolve(id string) routing.Answer
}

// StreamEnded implements extproc.Activity. Envoy's times are of the wall clock and stamps
// are of the registry's clock, so StreamEnded subtracts the age of `at` from the latter.
//
// Envoy may report a stream long after its claim has ended, when the registry has
// forgotten that: a new entry would then stay for good. So an entry is made only for a
// claim that may live, such as that of a stream which began under the process before
// this one.
func (u usage) StreamEnded(id, claim string, at time.Time) {
	stamp := u.Existing(id, claim)
	if stamp == nil && u.mayLive(id, claim) {
		stamp = u.Stamp(id, claim)
	}
	if stamp != nil {
		stamp.Touch(u.Now() - max(time.Since(at), 0).Nanoseconds())
	}
}

// mayLive reports whether the index shows the claim as its sandbox's. An index that has
// not listed yet rules out no claim.
func (u usage) mayLive(id, claim string) bool {
	if !u.index.Synced() {
		return true
	}
	a := u.index.Resolve(id)
	return a.ClaimID == claim && a.State != routing.Ended
}

// LastActive implements controlplane.ActivitySource.
func (u usage) LastActive(cursor uint64) controlplane.ActivityReport {
	r := u.Since(cursor)
	out := controlplane.ActivityReport{
		Source: r.Instance, Cursor: r.Cursor, Known: r.Known,
		Entries: make([]controlplane.Activity, len(r.Entries)),
	}
	for i, e := range r.Entries {
		out.Entries[i] = controlplane.Activity{SandboxID: e.ID, ClaimID: e.Claim, Age: e.Age}
	}
	for _, s := range r.Seen {
		out.Seen = append(out.Seen, controlplane.Sighting{SandboxID: s.ID, ClaimID: s.Claim, Age: s.Age, PauseOrder: s.PauseOrder})
	}
	return out
}

// Remember implements controlplane.ActivitySource. It drops a claim only if the index shows its
// sandbox as ended: one that the index does not show yet may be in use.
func (u usage) Remember(seen []controlplane.Sighting, used []controlplane.Activity) {
	for _, s := range seen {
		if u.index.Resolve(s.SandboxID).State != routing.Ended {
			u.RememberSeen(inuse.Sighting{ID: s.SandboxID, Claim: s.ClaimID, Age: s.Age, PauseOrder: s.PauseOrder})
		}
	}
	for _, a := range used {
		if u.index.Resolve(a.SandboxID).State != routing.Ended {
			u.Stamp(a.SandboxID, a.ClaimID).Touch(u.Now() - max(a.Age, 0).Nanoseconds())
		}
	}
}
