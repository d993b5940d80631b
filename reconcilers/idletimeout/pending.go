package idletimeout

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// CheckAndReleasePendingSandboxes ends the sandboxes whose pod was claimed and
// does not run within their startup timeout. One that has no pod yet waits for
// a request or, made by one, is forgotten by reconcilers/sandbox.
func (r *IdleTimeoutReconciler) CheckAndReleasePendingSandboxes(ctx context.Context) error {
	var list v1alpha1.SandboxList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing sandboxes: %w", err)
	}
	timeouts := newTimeouts(r.client)
	now := r.Clock.Now()
	var errs []error
	for i := range list.Items {
		s := &list.Items[i]
		if s.Spec.End != nil || s.Spec.Binding == nil || s.Status.Phase != v1alpha1.SandboxStarting {
			continue
		}
		startup, _, err := timeouts.of(ctx, s)
		if err != nil {
			return err
		}
		late, err := r.late(ctx, s, startup, now)
		if err != nil {
			return err
		}
		if late {
			errs = append(errs, r.end(ctx, s, v1alpha1.EndStartupTimeout, fmt.Sprintf("not running within %s", startup)))
		}
	}
	return errors.Join(errs...)
}

// late: the pod was claimed for the sandbox longer ago than the timeout, and is
// still starting.
func (r *IdleTimeoutReconciler) late(ctx context.Context, s *v1alpha1.Sandbox, startup time.Duration, now time.Time) (bool, error) {
	pod := &corev1.Pod{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: s.Spec.Namespace, Name: s.Spec.Binding.PodName}, pod)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading pod %s: %w", s.Spec.Binding.PodName, err)
	}
	if !v1alpha1.Backs(pod, s) || v1alpha1.PhaseOf(pod) != v1alpha1.PodStarting {
		return false, nil
	}
	claimedAt, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AnnotationClaimedAt])
	if err != nil {
		return false, nil //nolint:nilerr // nobody can say when its startup began
	}
	return now.Sub(claimedAt) >= startup, nil
}
