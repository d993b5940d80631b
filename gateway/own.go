package gateway

import (
	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/pause"
	"github.com/sandlane/sandlane/routing"
)

// ownWrites are this gateway's own writes to sandboxes that its watch may not have
// shown yet: ends, pauses and resumes.
type ownWrites struct {
	*endings
	pauser *pause.Pauser
}

// Correct changes the answer of the index where this gateway's own writes are newer.
func (o ownWrites) Correct(a routing.Answer) routing.Answer {
	return o.pauser.Correct(o.endings.Correct(a))
}

// firstRequestTimeouts returns the pool's timeouts for a sandbox that a first request
// makes.
func (g *gateway) firstRequestTimeouts(namespace, pool string) (t v1alpha1.SandboxTimeouts) {
	p, _ := g.index.Pool(namespace, pool)
	v1alpha1.PauseDefaults(&t, p.Spec)
	return t
}

// firstRequestEgress returns which hosts such a sandbox may connect to.
func (g *gateway) firstRequestEgress(namespace, pool string) *v1alpha1.SandboxEgress {
	p, _ := g.index.Pool(namespace, pool)
	if p.Spec == nil || p.Spec.FirstRequest == nil {
		return nil
	}
	return p.Spec.FirstRequest.Egress.Sandbox()
}
