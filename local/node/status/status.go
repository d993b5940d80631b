// Package status makes the status of the local node's pods: Build from what the node knows, First
// for a container that the node has not touched yet, Patch to write it. Package node alone calls it;
// it keeps nothing.
package status

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// HostIP is the node's own address: pods and control plane share the machine.
const HostIP = "127.0.0.1"

// Snapshot is what the status of a pod is made from.
type Snapshot struct {
	Spec      *corev1.PodSpec
	PodIP     string
	StartTime metav1.Time
	// InitContainers and Containers are in the order of the spec.
	InitContainers, Containers []corev1.ContainerStatus

	Reason   string // why the pod cannot start or has failed
	Message  string
	Finished bool // no container will run again
	Pooled   bool // of a pool: reached says whether gateways can connect
	Reached  bool
	Previous []corev1.PodCondition
	Now      metav1.Time
}

// Build makes the pod's status. It is a pure function.
func Build(s Snapshot) corev1.PodStatus {
	st := corev1.PodStatus{
		HostIP: HostIP, HostIPs: []corev1.HostIP{{IP: HostIP}}, StartTime: &s.StartTime,
		InitContainerStatuses: s.InitContainers, ContainerStatuses: s.Containers, Reason: s.Reason, Message: s.Message,
	}
	initializing := uninitialized(s.InitContainers)
	if initializing != "" {
		st.ContainerStatuses = waiting(s.Containers)
	}
	if s.PodIP != "" {
		st.PodIP, st.PodIPs = s.PodIP, []corev1.PodIP{{IP: s.PodIP}}
	}
	st.Phase = phaseOf(s)
	unready := ""
	for _, c := range s.Containers {
		if !c.Ready {
			unready += " " + c.Name
		}
	}
	ended := st.Phase == corev1.PodSucceeded || st.Phase == corev1.PodFailed
	set := func(t corev1.PodConditionType, ok bool, reason, message string) {
		c := corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: s.Now}
		if !ok {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, reason, message
		}
		if i := slices.IndexFunc(s.Previous, func(p corev1.PodCondition) bool { return p.Type == t }); i >= 0 && s.Previous[i].Status == c.Status {
			c.LastTransitionTime = s.Previous[i].LastTransitionTime
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
	set(corev1.PodReadyToStartContainers, s.PodIP != "" && !ended, "", "")
	set(corev1.PodInitialized, initializing == "", "ContainersNotInitialized", "containers with incomplete status: ["+initializing+"]")
	set(corev1.PodScheduled, true, "", "")
	set(corev1.ContainersReady, unready == "" && !ended, reason, message)
	gates := missingGate(s)
	if gates != "" && unready == "" && !ended {
		reason, message = "ReadinessGatesNotReady", "readiness gate is not true: "+gates
	}
	set(corev1.PodReady, unready == "" && !ended && gates == "", reason, message)
	if s.Pooled {
		set(v1alpha1.PodConditionReachable, s.Reached, "NotIdle", "the address is opened once the pod is idle")
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
func missingGate(s Snapshot) string {
	for _, gate := range s.Spec.ReadinessGates {
		if !slices.ContainsFunc(s.Previous, func(c corev1.PodCondition) bool {
			return c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue
		}) {
			return string(gate.ConditionType)
		}
	}
	return ""
}

// uninitialized are the names of init containers that have not ended well yet.
func uninitialized(inits []corev1.ContainerStatus) string {
	var names []string
	for _, c := range inits {
		if c.State.Terminated == nil || c.State.Terminated.ExitCode != 0 {
			names = append(names, c.Name)
		}
	}
	return strings.Join(names, " ")
}

// waiting are the containers of a pod whose init containers still run.
func waiting(containers []corev1.ContainerStatus) []corev1.ContainerStatus {
	shown := slices.Clone(containers)
	for i := range shown {
		if shown[i].State.Waiting != nil {
			shown[i].State.Waiting = &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
		}
	}
	return shown
}

func phaseOf(s Snapshot) corev1.PodPhase {
	started, failed := uninitialized(s.InitContainers) == "", s.Reason != "" && s.Finished
	for _, c := range slices.Concat(s.InitContainers, s.Containers) {
		if c.State.Terminated != nil && c.State.Terminated.ExitCode != 0 {
			failed = true
		}
		if c.State.Waiting != nil && c.LastTerminationState.Terminated == nil {
			started = false
		}
	}
	switch {
	case s.Finished && failed:
		return corev1.PodFailed
	case s.Finished && started:
		return corev1.PodSucceeded
	case s.Finished:
		return corev1.PodFailed
	case started:
		return corev1.PodRunning
	}
	return corev1.PodPending
}

// MayRestart says whether the policy starts a container again.
func MayRestart(policy corev1.RestartPolicy, exitCode int32) bool {
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return exitCode != 0
	}
	return true
}

// InitPolicy is what a pod's policy means for its init containers, which run to one good end.
func InitPolicy(policy corev1.RestartPolicy) corev1.RestartPolicy {
	if policy == corev1.RestartPolicyNever {
		return policy
	}
	return corev1.RestartPolicyOnFailure
}

// First is a container's status before this node touched it: empty, or
// what another life of this node left, whose process is dead.
func First(spec *corev1.Pod, i int) corev1.ContainerStatus {
	return first(&spec.Spec.Containers[i], spec.Status.ContainerStatuses, spec.Spec.RestartPolicy)
}

// FirstInit is First for an init container. One that ended well in another life of the node
// runs again, since what it made may be gone.
func FirstInit(spec *corev1.Pod, i int) corev1.ContainerStatus {
	st := first(&spec.Spec.InitContainers[i], spec.Status.InitContainerStatuses, InitPolicy(spec.Spec.RestartPolicy))
	if end := st.State.Terminated; end != nil && end.ExitCode == 0 {
		st.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
	}
	return st
}

func first(c *corev1.Container, known []corev1.ContainerStatus, policy corev1.RestartPolicy) corev1.ContainerStatus {
	st := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Started: new(bool)}
	st.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	for _, old := range known {
		if old.Name != c.Name || old.ContainerID == "" {
			continue
		}
		st.RestartCount, st.ContainerID, st.ImageID = old.RestartCount, old.ContainerID, old.ImageID
		st.LastTerminationState = old.LastTerminationState
		switch {
		case old.State.Running != nil:
			st.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "the node was restarted",
				StartedAt: old.State.Running.StartedAt, FinishedAt: metav1.Now(), ContainerID: old.ContainerID,
			}}
		case old.State.Terminated != nil:
			st.LastTerminationState = old.State
		}
		if last := st.LastTerminationState.Terminated; last != nil && !MayRestart(policy, last.ExitCode) {
			st.State = corev1.ContainerState{Terminated: last}
		}
	}
	return st
}

// Foreign are the conditions that others set, such as readiness gates.
func Foreign(all []corev1.PodCondition) (out []corev1.PodCondition) {
	for _, c := range all {
		switch c.Type {
		case corev1.PodReady, corev1.ContainersReady, corev1.PodInitialized, corev1.PodScheduled, corev1.PodReadyToStartContainers,
			v1alpha1.PodConditionReachable:
		default:
			out = append(out, c)
		}
	}
	return out
}
