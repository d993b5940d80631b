package idletimeout

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/reconcilers/internal/pausecount"
)

// pausesInstead reports whether an idle sandbox is paused and not ended: it asks for
// that, its pod can be frozen, and its pool has room for one more that is paused, which it takes.
func (r *IdleTimeoutReconciler) pausesInstead(ctx context.Context, s *v1alpha1.Sandbox) (bool, error) {
	if s.Spec.Timeouts.OnTimeout != v1alpha1.TimeoutPause || v1alpha1.TimeoutMode(s) == v1alpha1.PauseHibernate && !r.Hibernates {
		return false, nil
	}
	pod := &corev1.Pod{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: s.Spec.Namespace, Name: s.Spec.Binding.PodName}, pod)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the pod of sandbox %s: %w", s.Name, err)
	}
	if !v1alpha1.Backs(pod, s) || !v1alpha1.Freezable(&pod.Spec) {
		return false, nil
	}
	return pausecount.TakeRoom(ctx, r.Rooms, r.client, s)
}

// pause writes the pause of a prepared release, if that has not been called off. The
// reconciler of sandboxes has it carried out.
func (r *IdleTimeoutReconciler) pause(ctx context.Context, p pending) error {
	err := r.patch(ctx, p.sandbox, writes.PauseIdle(p.sandbox, p.Token))
	if err != nil {
		r.Rooms.GiveBack(p.sandbox)
	}
	if err != nil && !writes.Moved(err) {
		return fmt.Errorf("pausing idle sandbox %s: %w", p.SandboxID, err)
	}
	return nil
}
