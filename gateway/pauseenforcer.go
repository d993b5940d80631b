package gateway

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/gateway/pause"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// pauseEnforcer adapts the pauser to controlplane.PauseEnforcer.
type pauseEnforcer struct{ pauser *pause.Pauser }

// EnforcePause implements controlplane.PauseEnforcer.
func (q pauseEnforcer) EnforcePause(ctx context.Context, o controlplane.EnforcePause) error {
	err := q.pauser.EnforcePause(ctx, o.SandboxID, o.ClaimID, o.Freeze, o.Order)
	switch {
	case errors.Is(err, writes.ErrStale): // whatever else it is
	case errors.Is(err, pause.ErrNotSaved):
		return fmt.Errorf("%w: %w", controlplane.ErrNotSaved, err)
	case errors.Is(err, sandboxdclient.ErrNoFreezer):
		return fmt.Errorf("%w: %w", controlplane.ErrNoFreezer, err)
	case errors.Is(err, sandboxdclient.ErrRefused), errors.Is(err, sandboxdclient.ErrNotInitialised), errors.Is(err, sandboxdclient.ErrBusy):
		return fmt.Errorf("%w: %w", controlplane.ErrNotDone, err)
	case errors.Is(err, sandboxdclient.ErrNoAnswer):
		return fmt.Errorf("%w: %w", controlplane.ErrUnanswered, err)
	}
	return err // this gateway could not ask: the controller must not take it for the freezer's failure
}
