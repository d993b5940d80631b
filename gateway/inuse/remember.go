package inuse

import (
	"time"

	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/routing"
)

// Remember implements controlplane.ActivitySource. It drops a claim only if the index shows its
// sandbox as ended: one that the index does not show yet may be in use.
func (r *Registry) Remember(seen []controlplane.Sighting, used []controlplane.Activity) {
	for _, s := range seen {
		if r.index.Resolve(s.SandboxID).State != routing.Ended {
			r.rememberSeen(s)
		}
	}
	for _, a := range used {
		if r.index.Resolve(a.SandboxID).State != routing.Ended {
			r.ClaimUse(a.SandboxID, a.ClaimID).Touch(r.Now() - max(a.Age, 0).Nanoseconds())
		}
	}
}

// rememberSeen takes in since when a controller has seen a claim run, so that it outlasts
// the controller. Of several the one of the last pause or resume counts, and the latest of
// those. A claim that has ended is left out.
func (r *Registry) rememberSeen(s controlplane.Sighting) {
	at := r.Now() - max(s.Age, 0).Nanoseconds()
	r.ClaimUse(s.SandboxID, s.ClaimID) // so that it has an entry
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.find(s.SandboxID, s.ClaimID)
	if e == nil {
		return
	}
	if s.PauseOrder > e.seen.order || s.PauseOrder == e.seen.order && at > e.seen.at {
		e.seen = sighting{at, s.PauseOrder}
	}
}

// sightings returns what Remember took in. Under mu.
func (r *Registry) sightings(now int64) []controlplane.Sighting {
	var out []controlplane.Sighting
	for _, e := range r.all {
		if e.seen != (sighting{}) {
			out = append(out, controlplane.Sighting{SandboxID: e.id, ClaimID: e.claim, Age: time.Duration(max(now-e.seen.at, 0)), PauseOrder: e.seen.order})
		}
	}
	return out
}
