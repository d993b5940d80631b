package sandbox

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// setInplaceUpdated sets the condition InplaceUpdated: whether the pod, which backs the
// sandbox, runs the images that the sandbox asks for. The condition changes only with the
// pod's phase, so that it causes no write of its own.
func setInplaceUpdated(s *v1alpha1.Sandbox, pod *corev1.Pod) {
	if len(s.Spec.Images) == 0 {
		return
	}
	c := metav1.Condition{Type: v1alpha1.SandboxConditionInplaceUpdated, ObservedGeneration: s.Generation}
	switch v1alpha1.PhaseOf(pod) {
	case v1alpha1.PodStarting:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonInplaceUpdating
	case v1alpha1.PodRunning:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonInplaceUpdated
	default:
		return
	}
	meta.SetStatusCondition(&s.Status.Conditions, c)
}

// startFailed reports whether the sandbox has ended because the pod of its claim never ran
// it.
func startFailed(s *v1alpha1.Sandbox) bool {
	end := s.Spec.End
	return end != nil && (end.Reason == v1alpha1.EndFailed || end.Reason == v1alpha1.EndStartupTimeout) &&
		s.Spec.Binding != nil && s.Status.StartedAt == nil
}
