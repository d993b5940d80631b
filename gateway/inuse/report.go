package inuse

import (
	"time"

	"github.com/sandlane/sandlane/controlplane"
)

// Unknown is active:
//
// A report says Known only while the last tick read all of Envoy's counts, and
// that tick was not long ago. A tick that fails, a poller that is stuck, has not
// begun or has stopped: not Known, and no sandbox may be taken for idle.

// LastActive implements controlplane.ActivitySource: the claims touched since the report that
// gave the cursor, all of them for 0, and what is parked. The age of a parked one is 0, and its
// claim is empty if none is known here. Cursors are of one registry, which Source names; one from
// the future, which can only be another's, counts as 0.
func (r *Registry) LastActive(cursor uint64) controlplane.ActivityReport {
	r.catchUp()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if cursor > r.cursor {
		cursor = 0
	}
	r.cursor = max(r.cursor+1, uint64(max(now.UnixNano(), 0)))
	report := controlplane.ActivityReport{Source: r.instance, Cursor: r.cursor, Known: now.Before(r.known)}
	nanos := now.UnixNano()
	for _, e := range r.all {
		last := e.use.Load()
		if last != e.reported {
			e.reported, e.changed = last, r.cursor
		}
		switch {
		case len(r.parked) > 0 && r.parked[e.id] > 0:
			report.Entries = append(report.Entries, controlplane.Activity{SandboxID: e.id, ClaimID: e.claim})
		case e.changed > cursor:
			report.Entries = append(report.Entries, controlplane.Activity{SandboxID: e.id, ClaimID: e.claim, Age: time.Duration(max(nanos-last, 0))})
		}
	}
	if cursor == 0 {
		report.Seen = r.sightings(nanos)
	}
	for id := range r.parked {
		if r.entries[id] == nil {
			report.Entries = append(report.Entries, controlplane.Activity{SandboxID: id})
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
