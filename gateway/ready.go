package gateway

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/routing"
)

// errNoStore: a sandbox that hibernates cannot be restored here.
var errNoStore = errors.New("this gateway has no folder of checkpoints (--checkpoint-dir)")

// restorable returns nil if the sandbox's kept files are there. It is activation.Options.Restorable.
func (g *gateway) restorable(ctx context.Context, s *v1alpha1.Sandbox) error {
	if g.paused == nil {
		return fmt.Errorf("%w: %w", routing.ErrNotRestorable, errNoStore)
	}
	return g.paused.Restorable(ctx, s)
}

// fits returns nil if they can be restored in the idle pod. It is activation.Options.Fits.
func (g *gateway) fits(ctx context.Context, s *v1alpha1.Sandbox, pod types.NamespacedName) error {
	if g.paused == nil {
		return fmt.Errorf("%w: %w", routing.ErrNotRestorable, errNoStore)
	}
	return g.paused.Fits(ctx, s, pod)
}

// makeReady is activation's Ready: the pod must have the files that it is to have, not be
// frozen, and its sandboxd have been initialised.
func (g *gateway) makeReady(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
	if s.Spec.Restore != nil {
		if g.paused == nil {
			return activation.FailRequest.With(fmt.Errorf("restore sandbox %s: %w", s.Name, errNoStore))
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

// rehibernate takes a resume back that has no pod.
func (g *gateway) rehibernate(ctx context.Context, s *v1alpha1.Sandbox) error {
	if g.paused == nil {
		return nil
	}
	return g.paused.Rehibernate(ctx, s.Name, s.UID)
}
