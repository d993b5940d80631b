package node

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// hostIP is the node's own address: pods and control plane share the machine.
const hostIP = "127.0.0.1"

// snapshot is what the status of a pod is made from.
type snapshot struct {
	spec       *corev1.PodSpec
	podIP      string
	startTime  metav1.Time
	containers []corev1.ContainerStatus
	reason     string // why the pod cannot start or has failed
	message    string
	finished   bool // no container will run again
	pooled     bool // of a pool: reached says whether gateways can connect
	reached    bool
	freezes    bool // the node has a freezer
	frozen     bool
	// freezeOrder is the message of PodConditionFrozen.
	freezeOrder string
	previous    []corev1.PodCondition
	now         metav1.Time
}

// buildStatus makes the pod's status. It is a pure function.
func buildStatus(s snapshot) corev1.PodStatus {
	st := corev1.PodStatus{
		HostIP: hostIP, HostIPs: []corev1.HostIP{{IP: hostIP}}, StartTime: &s.startTime,
		ContainerStatuses: s.containers, Reason: s.reason, Message: s.message,
	}
	if s.podIP != "" {
		st.PodIP, st.PodIPs = s.podIP, []corev1.PodIP{{IP: s.podIP}}
	}
	st.Phase = phaseOf(s)
	unready := ""
	for _, c := range s.containers {
		if !c.Ready {
			unready += " " + c.Name
		}
	}
	ended := st.Phase == corev1.PodSucceeded || st.Phase == corev1.PodFailed
	set := func(t corev1.PodConditionType, ok bool, reason, message string) {
		c := corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: s.now}
		if !ok {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, reason, message
		}
		if i := slices.IndexFunc(s.previous, func(p corev1.PodCondition) bool { return p.Type == t }); i >= 0 && s.previous[i].Status == c.Status {
			c.LastTransitionTime = s.previous[i].LastTransitionTime
		}
		st.Conditions = append(st.Conditions, c)
	}
	reason, message := "ContainersNotReady", fmt.Sprintf("containers with unready status: [%s]", trimSpace(unready))
	if ended {
		reason, message = "PodCompleted", ""
		if st.Phase == corev1.PodFailed {
			reason = "PodFailed"
		}
	}
	set(corev1.PodReadyToStartContainers, s.podIP != "" && !ended, "", "")
	set(corev1.PodInitialized, true, "", "")
	set(corev1.PodScheduled, true, "", "")
	set(corev1.ContainersReady, unready == "" && !ended, reason, message)
	gates := missingGate(s)
	if gates != "" && unready == "" && !ended {
		reason, message = "ReadinessGatesNotReady", "readiness gate is not true: "+gates
	}
	set(corev1.PodReady, unready == "" && !ended && gates == "", reason, message)
	if s.pooled {
		set(v1alpha1.PodConditionReachable, s.reached, "NotIdle", "the address is opened once the pod is idle")
	}
	if s.pooled && s.freezes {
		set(v1alpha1.PodConditionFrozen, s.frozen && !ended, "Runs", "")
		st.Conditions[len(st.Conditions)-1].Message = s.freezeOrder
	}
	return st
}

func trimSpace(s string) string {
	if s == "" {
		return s
	}
	return s[1:]
}

// missingGate names a readiness gate that is not true.
func missingGate(s snapshot) string {
	for _, gate := range s.spec.ReadinessGates {
		if !slices.ContainsFunc(s.previous, func(c corev1.PodCondition) bool {
			return c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue
		}) {
			return string(gate.ConditionType)
		}
	}
	return ""
}

func phaseOf(s snapshot) corev1.PodPhase {
	started, failed := true, s.reason != "" && s.finished
	for _, c := range s.containers {
		if c.State.Terminated != nil && c.State.Terminated.ExitCode != 0 {
			failed = true
		}
		if c.State.Waiting != nil && c.LastTerminationState.Terminated == nil {
			started = false
		}
	}
	switch {
	case s.finished && failed:
		return corev1.PodFailed
	case s.finished && started:
		return corev1.PodSucceeded
	case s.finished:
		return corev1.PodFailed
	case started:
		return corev1.PodRunning
	}
	return corev1.PodPending
}

// mayRestart says whether the policy starts a container again.
func mayRestart(policy corev1.RestartPolicy, exitCode int32) bool {
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return exitCode != 0
	}
	return true
}
