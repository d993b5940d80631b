package podstate

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Container is what is on record of a container since its pod turned idle, or, once
// image changes and hooks are done, running.
type Container struct {
	Image    string `json:"image"`
	ID       string `json:"id,omitempty"`
	Restarts int32  `json:"restarts"`
}

// ContainersOf returns what runs in the pod now, by container name.
func ContainersOf(pod *corev1.Pod) map[string]Container {
	all := make(map[string]Container, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		now := Container{Image: c.Image}
		if s := statusOf(pod, c.Name); s != nil {
			now.ID, now.Restarts = s.ContainerID, s.RestartCount
		}
		all[c.Name] = now
	}
	return all
}

// EncodeContainers is the value of AnnotationContainers.
func EncodeContainers(all map[string]Container) string {
	raw, err := json.Marshal(all)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(raw)
}

// OnRecord returns what AnnotationContainers says; nil if there is no record.
func OnRecord(pod *corev1.Pod) map[string]Container {
	var all map[string]Container
	if json.Unmarshal([]byte(pod.Annotations[v1alpha1.AnnotationContainers]), &all) != nil {
		return nil
	}
	return all
}

func statusOf(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == container {
			return s
		}
	}
	return nil
}

// another: the status shows another container than the one on record.
func (was Container) another(s *corev1.ContainerStatus) bool {
	return was.ID != "" && s.ContainerID != "" && s.ContainerID != was.ID || s.RestartCount > was.Restarts
}

// Restarted finds a container that ended, or was started again, since it was put
// on record, without a claim having changed its image. before is true if all of
// that happened before the claim, so that only the record is old. It is pure.
//
// A restart is known by container ID and restart count. Times in a pod's status
// are whole seconds: they only tell a restart that is safely older than the
// claim, of a pod whose record was not brought up to date.
func Restarted(pod *corev1.Pod) (d *PodStatusDetail, before bool) {
	record := OnRecord(pod)
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		was, known := record[c.Name]
		s := statusOf(pod, c.Name)
		if !known || s == nil || was.Image != c.Image {
			continue
		}
		last := s.LastTerminationState.Terminated
		ended := s.State.Running == nil && last != nil && last.ContainerID != "" && last.ContainerID == was.ID
		if !ended && !was.another(s) {
			continue
		}
		if !ended && last != nil && beforeClaim(pod, last) {
			before = true
			continue
		}
		if last == nil {
			last = &corev1.ContainerStateTerminated{Reason: ReasonRestarted}
		}
		return fromRestarted(c.Name, last), false
	}
	return nil, before
}

func beforeClaim(pod *corev1.Pod, t *corev1.ContainerStateTerminated) bool {
	claimed, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AnnotationClaimedAt])
	return err == nil && !t.FinishedAt.IsZero() && !t.FinishedAt.Add(time.Second).After(claimed)
}
