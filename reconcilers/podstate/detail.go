package podstate

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Reasons in AnnotationFailureReason, besides what the kubelet says (Evicted,
// OOMKilled, Error, …).
const (
	ReasonStartupTimeout = "StartupTimeout"
	ReasonUnready        = "Unready"
	ReasonAddressChanged = "AddressChanged"
	ReasonCrashed        = "Crashed"
	ReasonRestarted      = "Restarted"
	ReasonDeleted        = "Deleted"
	ReasonEvicted        = "Evicted"
	ReasonNodeLost       = "NodeLost"
	ReasonPreempted      = "Preempted"
	ReasonUnschedulable  = "Unschedulable"
	ReasonHookFailed     = "PostStartHookFailed"
	ReasonPulling        = "Pulling"
)

// PodStatusDetail says what is wrong with a pod, for people.
type PodStatusDetail struct {
	// PodName is the pod's name, Phase its phase in Kubernetes' words.
	PodName string
	Phase   string
	// Reason is one word: the kubelet's where it gave one.
	Reason string
	// Message is one sentence.
	Message string
	// Events are the pod's latest, the latest first; only
	// BuildPodStatusDetailWithEvents reads them.
	Events []PodDiagnosticEvent
	// ExitCode is that of the container that ended, if one did.
	ExitCode *int32
	// FinishedAt is when it did; zero if unknown.
	FinishedAt time.Time
}

// PodDiagnosticEvent is one Event of a pod.
type PodDiagnosticEvent struct {
	Reason, Message string
	// LastTimestamp is when it last happened, in RFC 3339; empty if unknown.
	LastTimestamp string
	// Count is how often it happened; at least 1.
	Count int32
}

// BuildSandboxStatusDetailFromPod tells from the pod alone what keeps it from
// serving, nil if nothing is known to. It is pure.
func BuildSandboxStatusDetailFromPod(pod *corev1.Pod) *PodStatusDetail {
	if d := Failure(pod); d != nil {
		return d
	}
	return waiting(pod).of(pod)
}

// Progress tells how far a pod that starts is, where its node says that, as one of `sandlane up` does
// of a pull; else it is empty. It is pure.
func Progress(pod *corev1.Pod) string {
	for _, c := range containerStatuses(pod) {
		if w := c.State.Waiting; w != nil && w.Reason == "ContainerCreating" && w.Message != "" {
			return "container " + c.Name + ": " + w.Message
		}
	}
	return ""
}

// of notes whose detail it is. Of nil it is nil.
func (d *PodStatusDetail) of(pod *corev1.Pod) *PodStatusDetail {
	if d != nil {
		d.PodName, d.Phase = pod.Name, string(pod.Status.Phase)
	}
	return d
}

// waiting tells what a pod that has not failed waits for; nil if nothing is known.
func waiting(pod *corev1.Pod) *PodStatusDetail {
	for _, c := range containerStatuses(pod) {
		if w := c.State.Waiting; w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return &PodStatusDetail{Reason: w.Reason, Message: sentence("container "+c.Name+" is waiting", w.Reason, w.Message)}
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return &PodStatusDetail{Reason: ReasonUnschedulable, Message: sentence("no node takes the pod", "", c.Message)}
		}
	}
	return nil
}
