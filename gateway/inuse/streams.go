package inuse

import (
	"time"

	"github.com/sandlane/sandlane/routing"
)

// ClaimIndex says which claim is a sandbox's. The index satisfies it.
type ClaimIndex interface {
	Synced() bool
	Resolve(id string) routing.Answer
}

// noIndex is an index that has not listed.
type noIndex struct{}

func (noIndex) Synced() bool                  { return false }
func (noIndex) Resolve(string) routing.Answer { return routing.Answer{} }

// StreamEnded notes that the claim was in use until then. Envoy's times are of the wall clock and
// uses are of the registry's clock, so StreamEnded subtracts the age of `at` from the latter.
//
// Envoy may report a stream long after its claim has ended, when the registry has
// forgotten that: a new entry would then stay for good. So an entry is made only for a
// claim that may live, such as that of a stream which began under the process before
// this one.
func (r *Registry) StreamEnded(id, claim string, at time.Time) {
	use := r.Existing(id, claim)
	if use == nil && r.mayLive(id, claim) {
		use = r.ClaimUse(id, claim)
	}
	if use != nil {
		use.Touch(r.Now() - max(time.Since(at), 0).Nanoseconds())
	}
}

// mayLive reports whether the index shows the claim as its sandbox's. An index that has
// not listed yet rules out no claim.
func (r *Registry) mayLive(id, claim string) bool {
	if !r.index.Synced() {
		return true
	}
	a := r.index.Resolve(id)
	return a.ClaimID == claim && a.State != routing.Ended
}
