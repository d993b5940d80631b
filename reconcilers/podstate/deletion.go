package podstate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// DeletionDetail says who deleted a claimed pod, and why, as far as Kubernetes
// noted it on the pod; nil if the pod is not being deleted.
func DeletionDetail(pod *corev1.Pod) *PodStatusDetail {
	if pod.DeletionTimestamp == nil {
		return nil
	}
	d := (&PodStatusDetail{Reason: ReasonDeleted, Message: fmt.Sprintf("its pod %s was deleted", pod.Name)}).of(pod)
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type != corev1.DisruptionTarget || c.Status != corev1.ConditionTrue {
			continue
		}
		what := "its pod " + pod.Name + " was disrupted"
		switch c.Reason {
		case "EvictionByEvictionAPI", corev1.PodReasonTerminationByKubelet:
			d.Reason, what = ReasonEvicted, "its pod "+pod.Name+" was evicted"
		case "DeletionByTaintManager", "DeletionByPodGC":
			d.Reason, what = ReasonNodeLost, fmt.Sprintf("node %s of its pod %s was lost or drained", pod.Spec.NodeName, pod.Name)
		case corev1.PodReasonPreemptionByScheduler:
			d.Reason, what = ReasonPreempted, "its pod "+pod.Name+" made room for another"
		}
		d.Message = sentence(what, "", c.Message)
		return d
	}
	if pod.Status.Reason == ReasonNodeLost {
		d.Reason, d.Message = ReasonNodeLost, sentence(fmt.Sprintf("node %s of its pod %s was lost", pod.Spec.NodeName, pod.Name), "", pod.Status.Message)
	}
	return d
}
