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
// does not run within their startup timeout. It leaves alone those without a pod, which
// reconcilers/sandbox deletes or ends if a client waits for them. Only the goroutine of
// Start, or one that stands in for it, calls it.
//
// The startup time of a claim begins when this process first saw it starting, on the
// monotonic clock, or earlier if the pod's claimed-at says so, by at most the time between
// two checks: clocks that differ or step cannot move it by more. A timer is set for the
// claim that is late next, so that it ends at that moment and not at the next check. Before
// the end is written, the pod is read from the API server, since the cache may not show
// that it runs. With a new leader the time begins anew.
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

// missed returns for how long the pod had been starting before this process first saw that,
// by the pod's claimed-at; at most the time between two checks.
func (r *IdleTimeoutReconciler) missed(pod *corev1.Pod, now time.Time) time.Duration {
	claimedAt, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AnnotationClaimedAt])
	if err != nil {
		return 0
	}
	return min(max(now.Sub(claimedAt), 0), r.interval)
}
