package inuse

import "time"

// RememberSeen takes in since when a controller has seen a claim run, so that it outlasts
// the controller. Of several the one of the last pause or resume counts, and the latest of
// those. A claim that has ended is left out.
func (r *Registry) RememberSeen(s Sighting) {
	at := r.Now() - max(s.Age, 0).Nanoseconds()
	r.Stamp(s.ID, s.Claim) // so that it has an entry
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.find(s.ID, s.Claim)
	if e == nil {
		return
	}
	if s.PauseOrder > e.seen.order || s.PauseOrder == e.seen.order && at > e.seen.at {
		e.seen = sighting{at, s.PauseOrder}
	}
}

// sightings returns what RememberSeen took in. Under mu.
func (r *Registry) sightings(now int64) []Sighting {
	var out []Sighting
	for _, e := range r.all {
		if e.seen != (sighting{}) {
			out = append(out, Sighting{e.id, e.claim, time.Duration(max(now-e.seen.at, 0)), e.seen.order})
		}
	}
	return out
}
