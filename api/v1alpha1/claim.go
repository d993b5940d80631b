package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// PhaseOf returns the pod's phase label; empty for a pod that is not a pool's.
func PhaseOf(pod *corev1.Pod) PodPhase { return PodPhase(pod.Labels[LabelPhase]) }

// Backs reports whether the pod and the sandbox name each other: the same
// claim, pod name and UID on both sides. It says nothing about the phase or
// the address (see RoutableAddress).
func Backs(pod *corev1.Pod, s *Sandbox) bool {
	b := s.Spec.Binding
	return b != nil && b.PodUID == string(pod.UID) && b.PodName == pod.Name &&
		s.Spec.Namespace == pod.Namespace &&
		pod.Annotations[AnnotationClaim] == b.ClaimID && pod.Labels[LabelSandboxID] == s.Name
}

// Finished reports whether Kubernetes says that the pod's containers have ended for
// good: evicted, out of resources, or completed. That never changes back, and may be so
// long before a process of ours has written another phase. No request may be routed to
// such a pod, and no claim may take it. RoutableAddress does not ask for it, since the pod
// may have served at its address before.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// RoutableAddress returns the address the pod may be reached on: its pod IP, if
// that equals the one noted when the pod turned idle; empty otherwise.
func RoutableAddress(pod *corev1.Pod) string {
	if ip := pod.Status.PodIP; ip != "" && ip == pod.Annotations[AnnotationAddress] {
		return ip
	}
	return ""
}

// HasPostStartHooks reports whether a claim must leave the pod starting, so that
// its hooks run before the sandbox is used.
func HasPostStartHooks(pod *corev1.Pod) bool {
	return pod.Annotations[AnnotationPostStartHooks] != ""
}

// RunsSandboxd reports whether the pods of a spec run sandboxd: one of their
// containers names its port.
func RunsSandboxd(spec *corev1.PodSpec) bool {
	for i := range spec.Containers {
		for _, p := range spec.Containers[i].Ports {
			if p.ContainerPort == SandboxdPort {
				return true
			}
		}
	}
	return false
}
