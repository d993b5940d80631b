package gateway

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/agent"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/gateway/pause"
)

// ownWrites are this gateway's own writes to sandboxes that its watch may not have
// shown yet: ends, pauses and resumes.
type ownWrites struct {
	*endings
	pauser *pause.Pauser
}

// Correct changes the answer of the index where this gateway's own writes are newer.
func (o ownWrites) Correct(a index.Answer) index.Answer {
	return o.pauser.Correct(o.endings.Correct(a))
}

// firstRequestTimeouts returns the pool's timeouts for a sandbox that a first request
// makes.
func (g *gateway) firstRequestTimeouts(namespace, pool string) (t v1alpha1.SandboxTimeouts) {
	p, _ := g.index.Pool(namespace, pool)
	v1alpha1.PauseDefaults(&t, p.Spec)
	return t
}

// errNoStore: a sandbox that hibernates cannot be restored here.
var errNoStore = errors.New("this gateway has no folder of checkpoints (--checkpoint-dir)")

// fits returns nil if the sandbox's kept files can be restored in the idle pod. It is
// activation.Options.Fits.
func (g *gateway) fits(ctx context.Context, s *v1alpha1.Sandbox, pod types.NamespacedName) error {
	if g.paused == nil {
		return fmt.Errorf("%w: %w", activation.ErrNotReady, errNoStore)
	}
	return g.paused.Fits(ctx, s, pod)
}

// makeReady is activation's Ready: the pod must have the files that it is to have, not be
// frozen, and its sandboxd have been initialised.
func (g *gateway) makeReady(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
	if s.Spec.Restore != nil {
		if g.paused == nil {
			return fmt.Errorf("restore sandbox %s: %w: %w", s.Name, activation.ErrNotReady, errNoStore)
		}
		restored, written, err := g.paused.Ready(ctx, s, pod)
		switch {
		case err != nil:
			return err
		case !written: // it may have been paused since, and its resume not be carried out yet
			return g.own.pauser.EnsureAwake(ctx, restored, pod)
		}
		g.own.pauser.NoteRestored(restored)
		return nil
	}
	if err := g.own.pauser.EnsureAwake(ctx, s, pod); err != nil {
		return err
	}
	return g.readiness.Ready(ctx, s, pod)
}

// quiescer adapts the pauser to controlplane.Quiescer.
type quiescer struct{ pauser *pause.Pauser }

// Quiesce implements controlplane.Quiescer.
func (q quiescer) Quiesce(ctx context.Context, o controlplane.Quiesce) error {
	err := q.pauser.Quiesce(ctx, o.SandboxID, o.ClaimID, o.Freeze, o.Generation)
	switch {
	case errors.Is(err, pause.ErrChanged):
		return fmt.Errorf("%w: %w", controlplane.ErrMoved, err)
	case errors.Is(err, pause.ErrNotSaved):
		return fmt.Errorf("%w: %w", controlplane.ErrNotSaved, err)
	case errors.Is(err, agent.ErrNoFreezer):
		return fmt.Errorf("%w: %w", controlplane.ErrNoFreezer, err)
	case errors.Is(err, agent.ErrRefused), errors.Is(err, agent.ErrNotInitialised), errors.Is(err, agent.ErrBusy):
		return fmt.Errorf("%w: %w", controlplane.ErrNotDone, err)
	case errors.Is(err, agent.ErrNoAnswer):
		return fmt.Errorf("%w: %w", controlplane.ErrUnanswered, err)
	}
	return err // this gateway could not ask: the controller must not take it for the freezer's failure
}
