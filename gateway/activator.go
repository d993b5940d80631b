package gateway

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/extproc"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/pause"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// activator adapts package activation, and pauses, to extproc.Activator.
type activator struct {
	*activation.Activator
	pauser *pause.Pauser
}

// Activate implements extproc.Activator. The deadline is the context's.
func (a activator) Activate(ctx context.Context, r extproc.ActivationRequest) error {
	if r.Resume {
		return a.resume(ctx, r)
	}
	deadline, _ := ctx.Deadline()
	return translate(a.Activator.Activate(ctx, activation.Request{
		ID: r.ID, Namespace: r.Namespace, Env: r.Env, Pool: r.Pool, Team: r.Team, New: r.New, MayClaim: r.MayClaim, Deadline: deadline,
	}))
}

// resume resumes a paused sandbox and then activates it, which makes the route: requests
// share both, so that a burst of them costs no read each. If the sandbox has changed
// meanwhile, extproc resolves again.
func (a activator) resume(ctx context.Context, r extproc.ActivationRequest) error {
	err := a.pauser.Wake(ctx, r.ID, r.UID)
	var hibernates *pause.HibernatedError
	switch {
	case errors.As(err, &hibernates):
		deadline, _ := ctx.Deadline()
		return translate(a.Activator.Activate(ctx, activation.Request{
			ID: r.ID, Namespace: r.Namespace, Env: r.Env, Pool: r.Pool, Team: r.Team, MayClaim: true, Deadline: deadline,
			Resume: activation.Resume{UID: r.UID, Lifetime: hibernates.Lifetime},
		}))
	case errors.Is(err, writes.ErrStale):
		return nil
	case err != nil:
		return err
	}
	r.Resume = false
	return a.Activate(ctx, r)
}

// translate turns an error of package activation into extproc's, as docs/design/no-pod.md
// lists them. Any other stays as it is: a failure of ours, which extproc answers with 503.
func translate(err error) error {
	if noStart := (*activation.NoStartError)(nil); errors.As(err, &noStart) {
		return fmt.Errorf("%w: %w", &extproc.NoStartError{Reason: noStart.Reason}, err)
	}
	for _, m := range activationErrors {
		if errors.Is(err, m.from) {
			return fmt.Errorf("%w: %w", m.to, err)
		}
	}
	switch {
	case quota{}.Exceeded(err):
		return fmt.Errorf("%w: %w", extproc.ErrSandboxLimit, err)
	case errors.Is(err, activation.ErrInvalid):
		return fmt.Errorf("%w: %w", &extproc.InvalidError{Reason: schedule.PublicReason(err)}, err)
	case errors.Is(err, activation.ErrForbidden):
		return fmt.Errorf("%w: %w", extproc.ErrNotPermitted, err)
	}
	return err
}

// activationErrors are in the order in which they are looked for: an error can
// be several of them, and the first says what the client can do about it.
var activationErrors = []struct{ from, to error }{
	{activation.ErrExists, extproc.ErrExists},
	{activation.ErrEnded, extproc.ErrNotFound},
	{activation.ErrUnusable, extproc.ErrNotFound}, // it was ended
	{activation.ErrNotRestorable, extproc.ErrNotRestorable},
	{activation.ErrPoolNotFound, extproc.ErrPoolNotFound},
	{activation.ErrNoMember, extproc.ErrNoMember},
	{activation.ErrNoCapacity, extproc.ErrNoCapacity},
	{activation.ErrShutdown, extproc.ErrDraining},
}
