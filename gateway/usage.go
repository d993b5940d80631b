package gateway

import (
	"time"

	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/gateway/inuse"
)

// usage is the activity registry in the words of extproc and controlplane.
type usage struct{ *inuse.Registry }

// StreamEnded implements extproc.Activity. Envoy tells times by the wall clock,
// the stamps do not, so what counts is how long ago it was. The stamp of a claim
// that is over is one that nobody reports.
func (u usage) StreamEnded(id, claim string, at time.Time) {
	ago := max(time.Since(at), 0)
	u.Stamp(id, claim).Touch(u.Now() - ago.Nanoseconds())
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
	return out
}
