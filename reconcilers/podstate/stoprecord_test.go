package podstate

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// TestStopRecords: what is kept of a pod says what happened, in words.
func TestStopRecords(t *testing.T) {
	terminated := func(code int32, reason string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: code, Reason: reason, FinishedAt: metav1.NewTime(now.Add(-3 * time.Second))}}
		}
	}
	disrupted := func(reason, message string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			deleting(pod)
			pod.Spec.NodeName = "n1"
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message})
		}
	}
	for _, tt := range []struct {
		name    string
		end     v1alpha1.EndReason
		change  func(*corev1.Pod)
		stop    v1alpha1.StopReason
		reason  string
		message string
		exit    int32 // -1: none
	}{
		{"released", v1alpha1.EndReleased, func(*corev1.Pod) {}, v1alpha1.StopReleased, "", "", -1},
		{"idle", v1alpha1.EndIdleTimeout, func(*corev1.Pod) {}, v1alpha1.StopReleased, "", "", -1},
		{"completed", v1alpha1.EndCompleted, terminated(0, "Completed"), v1alpha1.StopCompleted, "", "", 0},
		{"canceled", v1alpha1.EndCanceled, func(*corev1.Pod) {}, v1alpha1.StopCanceled, "", "", -1},
		{"crashed", v1alpha1.EndFailed, terminated(3, "Error"), v1alpha1.StopFailed, "Crashed", "container main ended with exit code 3", 3},
		{"out of memory", v1alpha1.EndFailed, terminated(137, "OOMKilled"), v1alpha1.StopFailed, "OOMKilled", "too much memory", 137},
		{"crashed, and marked as failed since", v1alpha1.EndFailed, func(pod *corev1.Pod) {
			terminated(3, "Error")(pod)
			pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodFailed)
			pod.Annotations[v1alpha1.AnnotationStartedAt] = now.Add(-time.Minute).Format(time.RFC3339Nano)
			pod.Annotations[v1alpha1.AnnotationFailureReason] = "Crashed"
			pod.Annotations[v1alpha1.AnnotationFailureMessage] = "container main ended with exit code 3"
		}, v1alpha1.StopFailed, "Crashed", "exit code 3", 3},
		{"evicted", v1alpha1.EndFailed, func(pod *corev1.Pod) {
			pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", "the node was low on memory"
		}, v1alpha1.StopFailed, "Evicted", "low on memory", -1},
		{"evicted by request", v1alpha1.EndFailed, disrupted("EvictionByEvictionAPI", "Eviction API: evicting"), v1alpha1.StopFailed, "Evicted", "was evicted: Eviction API", -1},
		{"node lost", v1alpha1.EndFailed, disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
			v1alpha1.StopFailed, "NodeLost", "node n1 of its pod pod was lost or drained", -1},
		{"preempted", v1alpha1.EndFailed, disrupted("PreemptionByScheduler", ""), v1alpha1.StopFailed, "Preempted", "made room", -1},
		{"node lost, as pods' garbage collection says it", v1alpha1.EndFailed, func(pod *corev1.Pod) {
			deleting(pod)
			pod.Spec.NodeName, pod.Status.Reason = "n1", "NodeLost"
		}, v1alpha1.StopFailed, "NodeLost", "node n1 of its pod pod was lost", -1},
		{"deleted", v1alpha1.EndFailed, deleting, v1alpha1.StopFailed, "Deleted", "its pod pod was deleted", -1},
		{"startup timeout", v1alpha1.EndStartupTimeout, func(pod *corev1.Pod) {
			pod.Annotations[v1alpha1.AnnotationFailureReason] = ReasonStartupTimeout
			pod.Annotations[v1alpha1.AnnotationFailureMessage] = "not Ready within 1m0s: container main is waiting: ErrImagePull"
		}, v1alpha1.StopFailed, "StartupTimeout", "ErrImagePull", -1},
		{"other address", v1alpha1.EndFailed, func(pod *corev1.Pod) { pod.Status.PodIP = "10.0.0.2" }, v1alpha1.StopFailed, "AddressChanged", "from 10.0.0.1 to 10.0.0.2", -1},
		{"unknown", v1alpha1.EndFailed, func(*corev1.Pod) {}, v1alpha1.StopFailed, "Failed", "why it ended", -1},
		{"stopped before", v1alpha1.EndFailed, func(pod *corev1.Pod) {
			pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodStopping)
			pod.Annotations[v1alpha1.AnnotationStop] = `{"stopReason":"Canceled","failureReason":"NoSandbox"}`
		}, v1alpha1.StopCanceled, "NoSandbox", "", -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := CaptureSandboxStopRecord(claimedPod(v1alpha1.PodRunning, tt.change), &v1alpha1.End{Reason: tt.end, Message: "why it ended", At: metav1.NewTime(now)})
			exit := int32(-1)
			if r.ExitCode != nil {
				exit = *r.ExitCode
			}
			if r.StopReason != tt.stop || r.FailureReason != tt.reason || !strings.Contains(r.FailureMessage, tt.message) || exit != tt.exit {
				t.Errorf("%+v, exit code %d", r, exit)
			}
			if exit >= 0 && !r.TerminatedAt.Time.Equal(now.Add(-3*time.Second)) {
				t.Errorf("terminated at %v, not when the container ended", r.TerminatedAt)
			}
		})
	}
	if r := RecordWithoutPod("gone", &v1alpha1.End{Reason: v1alpha1.EndFailed, Message: "its pod gone is gone", At: metav1.NewTime(now)}); r.PodName != "gone" || r.FailureReason != "Deleted" || r.FailureMessage == "" {
		t.Errorf("%+v", r)
	}
}

// Without a reason for the end the pod itself tells whether its sandbox failed; nothing panics.
func TestStopRecordWithoutAnEnd(t *testing.T) {
	pod := newTestPod(v1alpha1.PodRunning)
	if r := CaptureSandboxStopRecord(pod, nil); r.StopReason != v1alpha1.StopCompleted || r.TerminatedAt != nil || r.PodName != pod.Name {
		t.Errorf("of a pod that runs: %+v", r)
	}
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 3, Reason: "Error", FinishedAt: metav1.NewTime(now)}}
	if r := CaptureSandboxStopRecord(pod, nil); r.StopReason != v1alpha1.StopFailed || r.FailureReason != "Crashed" || r.TerminatedAt == nil {
		t.Errorf("of a pod that crashed: %+v", r)
	}
}

// The record has the images that the sandbox ran: those of a claim once it has started.
func TestImagesThatRan(t *testing.T) {
	pod := newTestPod(v1alpha1.PodStarting)
	pod.Annotations[v1alpha1.AnnotationContainers] = EncodeContainers(map[string]Container{"main": {Image: "idle"}})
	pod.Spec.Containers[0].Image = "asked-for"
	if got := CaptureSandboxStopRecord(pod, nil).Images["main"]; got != "idle" {
		t.Errorf("before its start: %q", got)
	}
	pod.Annotations[v1alpha1.AnnotationStartedAt] = now.Format(time.RFC3339Nano)
	if got := CaptureSandboxStopRecord(pod, nil).Images["main"]; got != "asked-for" {
		t.Errorf("after its start: %q", got)
	}
}
