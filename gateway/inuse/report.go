package inuse

import "time"

// Unknown is active:
//
// A Report says Known only while the last tick read all of Envoy's counts, and
// that tick was not long ago. A tick that fails, a poller that is stuck, has not
// begun or has stopped: not Known, and no sandbox may be taken for idle.

// Report is what a gateway knows of use since a cursor.
type Report struct {
	// Instance is this registry's own: another one means that the gateway's
	// memory began anew, and cursors with it.
	Instance string
	// Cursor is what to ask with next time.
	Cursor uint64
	// Known is false if Envoy's open requests are not known now: then every
	// sandbox must be taken for active.
	Known bool
	// Entries are the claims touched since the cursor, and what is parked.
	Entries []Entry
	// Seen is what was remembered of claims that run, for a cursor of 0.
	Seen []Sighting
}

// Sighting is how long a controller has seen a claim run, and the Sandbox's pauseOrder for
// which that held.
type Sighting struct {
	ID, Claim  string
	Age        time.Duration
	PauseOrder int64
}

// Entry is one sandbox's use.
type Entry struct {
	// ID and Claim name the claim. Claim is empty for a parked ID that has no
	// claim known here.
	ID, Claim string
	// Age is how long ago the last use was; 0 while a request is parked.
	Age time.Duration
}

// Since returns the claims touched since the report that gave the cursor, all of
// them for 0. Cursors are of one instance; one from the future, which can only be
// another instance's, counts as 0.
func (r *Registry) Since(cursor uint64) Report {
	r.catchUp()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if cursor > r.cursor {
		cursor = 0
	}
	r.cursor = max(r.cursor+1, uint64(max(now.UnixNano(), 0)))
	report := Report{Instance: r.instance, Cursor: r.cursor, Known: now.Before(r.known)}
	nanos := now.UnixNano()
	for _, e := range r.all {
		last := e.stamp.Load()
		if last != e.reported {
			e.reported, e.changed = last, r.cursor
		}
		switch {
		case len(r.parked) > 0 && r.parked[e.id] > 0:
			report.Entries = append(report.Entries, Entry{ID: e.id, Claim: e.claim})
		case e.changed > cursor:
			report.Entries = append(report.Entries, Entry{ID: e.id, Claim: e.claim, Age: time.Duration(max(nanos-last, 0))})
		}
	}
	if cursor == 0 {
		report.Seen = r.sightings(nanos)
	}
	for id := range r.parked {
		if r.entries[id] == nil {
			report.Entries = append(report.Entries, Entry{ID: id})
		}
	}
	return report
}

// setKnown notes that Envoy's counts are known for d from now; 0: they are not.
func (r *Registry) setKnown(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = time.Time{}
	if d > 0 {
		r.known = r.now().Add(d)
	}
}
