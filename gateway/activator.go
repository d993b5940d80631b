package gateway

import (
	"context"
	"errors"

	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/pause"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routing"
)

// activator is extproc's: it resumes a paused sandbox before it activates it.
type activator struct {
	*activation.Activator
	pauser *pause.Pauser
}

// Activate implements extproc.Activator. Requests share a resume and an activation, so that a
// burst of them costs no read each. If the sandbox has changed meanwhile, extproc resolves
// again.
func (a activator) Activate(ctx context.Context, r routing.Request) error {
	if r.Resume.UID == "" {
		return a.Activator.Activate(ctx, r)
	}
	err := a.pauser.Wake(ctx, r.ID, r.Resume.UID)
	var hibernates *pause.HibernatedError
	switch {
	case errors.As(err, &hibernates):
		r.MayClaim, r.Resume.Lifetime = true, hibernates.Lifetime
	case errors.Is(err, writes.ErrStale):
		return nil
	case err != nil:
		return err
	default:
		r.Resume = routing.Resume{}
	}
	return a.Activator.Activate(ctx, r)
}
