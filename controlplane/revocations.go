package controlplane

import (
	"sync"
	"time"
)

// How long a gateway's lease is left alone after it was revoked. While no gateway
// acknowledges anything: twice as long each time. While others do, no longer than
// othersRevokeWait.
const (
	minRevokeWait    = 10 * time.Second
	maxRevokeWait    = 5 * time.Minute
	othersRevokeWait = 5 * time.Second
)

// revocations keeps a controller that reaches no gateway from taking the data
// plane down with it. A revoked gateway serves nobody from its next renewal until
// it has listed everything anew; where the controller cannot be reached that helps
// the fences of that moment alone, and the next sandbox that ends asks for it
// again. So whoever revokes waits, longer each time. What is not revoked keeps its
// fences open, and an open fence delays an address's next use, no request.
//
// Where others acknowledge, they serve what one does not, and the controller is not
// what is cut off: no address has to wait for that one. The short wait that is left
// lets it serve between two revocations.
//
// Only an acknowledged fence counts. A gateway that answers polls and is too slow
// for fences would otherwise be made to list again and again.
//
// It is safe for concurrent use.
type revocations struct {
	mu   sync.Mutex
	last map[string]revocation // by lease name; guarded by mu
	// answered is when any gateway acknowledged last. Guarded by mu.
	answered time.Time
}

type revocation struct {
	at   time.Time
	wait time.Duration // until the next one
}

// due reports whether the gateway may be revoked now, and notes that it is. A try
// that fails counts as well: it may have been applied.
func (r *revocations) due(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, revoked := r.last[name]
	others := r.answered.After(last.at) // an acknowledgement of its own would have deleted last
	wait := last.wait
	if others {
		wait = min(wait, othersRevokeWait)
	}
	if revoked && time.Since(last.at) < wait {
		return false
	}
	next := min(max(2*last.wait, minRevokeWait), maxRevokeWait)
	if others {
		next = minRevokeWait
	}
	if r.last == nil {
		r.last = map[string]revocation{}
	}
	r.last[name] = revocation{at: time.Now(), wait: next}
	return true
}

// acknowledged forgets that the gateway was revoked, and notes that one answers.
func (r *revocations) acknowledged(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, name)
	r.answered = time.Now()
}

// keep forgets the gateways that are over.
func (r *revocations) keep(gateways []Gateway) {
	listed := make(map[string]bool, len(gateways))
	for _, g := range gateways {
		listed[g.Name] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.last {
		if !listed[name] {
			delete(r.last, name)
		}
	}
}
