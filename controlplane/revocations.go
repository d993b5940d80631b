package controlplane

import (
	"sync"
	"time"
)

// How long a gateway's lease is left alone after it was revoked: twice as long
// each time, until the gateway acknowledges a fence.
const (
	minRevokeWait = 10 * time.Second
	maxRevokeWait = 5 * time.Minute
)

// revocations keeps a controller that reaches no gateway from taking the data
// plane down with it. A revoked gateway serves nobody from its next renewal until
// it has listed everything anew; where the controller cannot be reached that helps
// the fences of that moment alone, and the next sandbox that ends asks for it
// again. So whoever revokes waits, longer each time. What is not revoked keeps its
// fences open, and an open fence delays an address's next use, no request.
//
// Only an acknowledged fence ends the waiting. A gateway that answers polls and is
// too slow for fences would otherwise be made to list again and again.
//
// It is safe for concurrent use.
type revocations struct {
	mu   sync.Mutex
	last map[string]revocation // by lease name; guarded by mu
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
	if revoked && time.Since(last.at) < last.wait {
		return false
	}
	if r.last == nil {
		r.last = map[string]revocation{}
	}
	r.last[name] = revocation{at: time.Now(), wait: min(max(2*last.wait, minRevokeWait), maxRevokeWait)}
	return true
}

// acknowledged forgets that the gateway was revoked.
func (r *revocations) acknowledged(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, name)
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
