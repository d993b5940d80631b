package index

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Life is what the watch has shown of a sandbox's claim, pause and end.
type Life struct {
	// Known: there is a record of a sandbox of this ID; the rest is of that.
	Known bool
	UID   types.UID
	// ClaimID is its binding's, empty without one.
	ClaimID string
	// Ended: it has ended, or is being deleted.
	Ended bool
	// Paused: it is paused, or its files are not restored yet.
	Paused bool
	// EndAt is when it ends at the latest; zero if no time is set.
	EndAt time.Time
}

// Life returns what lists of the REST API show of a sandbox's life. It allocates nothing: a page of a list asks it for every sandbox of a namespace.
func (x *Index) Life(id string) Life {
	x.mu.RLock()
	s := x.sandboxes[id]
	x.mu.RUnlock()
	if s == nil {
		return Life{}
	}
	l := Life{Known: true, UID: s.uid, ClaimID: s.claim, Ended: s.ended, Paused: s.paused || s.restoring}
	if s.endAt != 0 {
		l.EndAt = time.Unix(int64(s.endAt), 0)
	}
	return l
}
