package podstate

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// CaptureSandboxStopRecord takes what is to be kept of a pod whose claim is
// over, before the pod changes any more. end says why it is over; nil if nothing does: then
// the sandbox failed if its pod did, and else completed. It is pure.
func CaptureSandboxStopRecord(pod *corev1.Pod, end *v1alpha1.End) *v1alpha1.StopRecord {
	if written := WrittenRecord(pod); written != nil && v1alpha1.PhaseOf(pod) == v1alpha1.PodStopping {
		return written // by the process that stopped it; what the pod shows by now came after
	}
	if end == nil {
		end = &v1alpha1.End{Reason: v1alpha1.EndCompleted}
		if _, noted := pod.Annotations[v1alpha1.AnnotationFailureReason]; noted || Failure(pod) != nil || v1alpha1.PhaseOf(pod) == v1alpha1.PodFailed {
			end.Reason = v1alpha1.EndFailed
		}
	}
	record := &v1alpha1.StopRecord{
		StopReason:     stopReason(end.Reason),
		Images:         ImagesThatRan(pod),
		FailureReason:  pod.Annotations[v1alpha1.AnnotationFailureReason],
		FailureMessage: pod.Annotations[v1alpha1.AnnotationFailureMessage],
		PodName:        pod.Name,
		NodeName:       pod.Spec.NodeName,
	}
	if at := end.At; !at.IsZero() {
		record.TerminatedAt = &at
	}
	d := Failure(pod)
	if _, ran := pod.Annotations[v1alpha1.AnnotationStartedAt]; d == nil && ran && v1alpha1.PhaseOf(pod) == v1alpha1.PodFailed {
		d = lost(pod) // its end is why it is failed, and says how and when
	}
	if d == nil {
		d = DeletionDetail(pod)
	}
	if d != nil {
		record.ExitCode = d.ExitCode
		if !d.FinishedAt.IsZero() {
			finished := metav1.NewTime(d.FinishedAt.Truncate(time.Second))
			record.TerminatedAt = &finished
		}
	}
	if record.StopReason != v1alpha1.StopFailed || record.FailureReason != "" {
		return record
	}
	if d == nil {
		d = &PodStatusDetail{Reason: string(end.Reason), Message: end.Message}
	}
	record.FailureReason, record.FailureMessage = d.Reason, d.Message
	return record
}

// ImagesThatRan returns the image of each container of a claimed pod: those of its spec once
// its sandbox has started, and before that what ran when the pod turned idle.
func ImagesThatRan(pod *corev1.Pod) map[string]string {
	images := map[string]string{}
	if _, started := pod.Annotations[v1alpha1.AnnotationStartedAt]; started {
		for i := range pod.Spec.Containers {
			images[pod.Spec.Containers[i].Name] = pod.Spec.Containers[i].Image
		}
		return images
	}
	for name, c := range OnRecord(pod) {
		images[name] = c.Image
	}
	return images
}

// RecordWithoutPod is the record of a sandbox whose pod is gone without a trace.
func RecordWithoutPod(podName string, end *v1alpha1.End) *v1alpha1.StopRecord {
	at := end.At
	record := &v1alpha1.StopRecord{StopReason: stopReason(end.Reason), TerminatedAt: &at, PodName: podName}
	if record.StopReason == v1alpha1.StopFailed {
		record.FailureReason, record.FailureMessage = ReasonDeleted, end.Message
	}
	return record
}

// WrittenRecord returns what the pod's stop annotation says; nil if it has none that can
// be read.
func WrittenRecord(pod *corev1.Pod) *v1alpha1.StopRecord {
	record := &v1alpha1.StopRecord{}
	if json.Unmarshal([]byte(pod.Annotations[v1alpha1.AnnotationStop]), record) != nil || record.StopReason == "" {
		return nil
	}
	return record
}

func stopReason(r v1alpha1.EndReason) v1alpha1.StopReason {
	switch r {
	case v1alpha1.EndCompleted:
		return v1alpha1.StopCompleted
	case v1alpha1.EndCanceled:
		return v1alpha1.StopCanceled
	case v1alpha1.EndFailed, v1alpha1.EndStartupTimeout:
		return v1alpha1.StopFailed
	default:
		return v1alpha1.StopReleased
	}
}
