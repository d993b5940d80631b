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
	"github.com/sandlane/sandlane/reconcilers/podstate"
)

// CheckAndReleasePendingSandboxes ends the sandboxes whose pod was claimed and
// does not run within their startup timeout. One that has no pod yet waits for
// a request or, made by one, is forgotten by reconcilers/sandbox. Only the
// goroutine of Start, or one that stands in for it, calls it.
//
// A claim's startup counts from when this process first saw it start, on the
// monotonic clock, less what claimed-at says that was missed since the check
// before: so a step of the clock, or clocks that differ, move it by no more than
// the time between two checks. The next claim to be late sets a timer: its end
// comes to the moment, not at the next check. Before that is written the pod is
// read live, since a cache may lag behind its start. A new leader counts anew.
func (r *IdleTimeoutReconciler) CheckAndReleasePendingSandboxes(ctx context.Context) error {
	r.takeChanges()
	now := r.Clock.Now()
	r.due = time.Time{}
	timeouts := newTimeouts(r.client)
	var errs []error
	for t := range r.claims.starting {
		if err := r.judgeStart(ctx, t, timeouts, now); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// judgeStart ends a sandbox that is late, or notes when it will be.
func (r *IdleTimeoutReconciler) judgeStart(ctx context.Context, t *tracked, timeouts *timeouts, now time.Time) error {
	s := t.sandbox
	startup, _, err := timeouts.of(ctx, s)
	if err != nil {
		return err
	}
	pod, err := r.starting(ctx, r.client, s)
	if err != nil || pod == nil {
		return err
	}
	if t.starts.IsZero() {
		t.starts = now.Add(-r.missed(pod, now))
	}
	late := t.starts.Add(startup)
	if !now.Before(late) {
		// The cache may not show yet that it runs, and perhaps serves.
		if pod, err = r.starting(ctx, r.APIReader, s); err != nil || pod == nil {
			return err
		}
		return r.end(ctx, s, v1alpha1.EndStartupTimeout, podstate.NotReady(pod, startup))
	}
	if r.due.IsZero() || late.Before(r.due) {
		r.due = late
	}
	return nil
}

// starting returns the sandbox's pod, to be read alone, if that was claimed and
// does not run yet.
func (r *IdleTimeoutReconciler) starting(ctx context.Context, from client.Reader, s *v1alpha1.Sandbox) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := from.Get(ctx, client.ObjectKey{Namespace: s.Spec.Namespace, Name: s.Spec.Binding.PodName}, pod, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading pod %s: %w", s.Spec.Binding.PodName, err)
	}
	if !v1alpha1.Backs(pod, s) || v1alpha1.PhaseOf(pod) != v1alpha1.PodStarting {
		return nil, nil
	}
	return pod, nil
}

// missed is for how long the pod has been starting before it was first seen to,
// by its own account, but never more than lies between two checks.
func (r *IdleTimeoutReconciler) missed(pod *corev1.Pod, now time.Time) time.Duration {
	claimedAt, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AnnotationClaimedAt])
	if err != nil {
		return 0
	}
	return min(max(now.Sub(claimedAt), 0), r.interval)
}
