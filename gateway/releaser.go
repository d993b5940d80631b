package gateway

import (
	"context"

	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/gateway/inuse"
	"github.com/sandlane/sandlane/routecache"
)

// releaser prepares idle releases for the controller.
type releaser struct {
	usage  *inuse.Registry
	poller *inuse.EnvoyPoller
	cache  *routecache.Cache
}

// Prepare implements controlplane.Releaser. It holds all claims of the batch, and then
// looks once what is in use, so that it sees a request that was answered before the hold.
func (r releaser) Prepare(ctx context.Context, releases []controlplane.Release) (inUse []string, known bool) {
	for _, one := range releases {
		r.usage.Hold(one.SandboxID, one.ClaimID, one.Token)
	}
	// Envoy, too, answers no more requests by itself when it is asked what is open.
	for _, one := range releases {
		r.cache.Retract(one.SandboxID)
	}
	if err := r.cache.WaitMirror(ctx); err != nil {
		return nil, false
	}
	if err := r.poller.Refresh(ctx); err != nil {
		return nil, false
	}
	for _, one := range releases {
		if r.usage.InUse(one.SandboxID, one.ClaimID, one.Idle) {
			inUse = append(inUse, one.SandboxID)
		}
	}
	return inUse, true
}
