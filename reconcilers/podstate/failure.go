package podstate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Failure returns why the pod cannot be used any more, whatever its phase: it has finished
// or crashed, or its address is not the one with which it turned idle; nil if it can be.
// It is pure.
func Failure(pod *corev1.Pod) *PodStatusDetail { return failure(pod).of(pod) }

func failure(pod *corev1.Pod) *PodStatusDetail {
	if v1alpha1.Finished(pod) {
		d := &PodStatusDetail{Reason: pod.Status.Reason, Message: sentence("the pod is over", pod.Status.Reason, pod.Status.Message)}
		if t := terminated(pod); t != nil {
			d = fromTerminated(t.name, t.state)
			if pod.Status.Reason != "" {
				d.Reason, d.Message = pod.Status.Reason, sentence("the pod is over", pod.Status.Reason, pod.Status.Message)
			}
		}
		if d.Reason == "" {
			d.Reason = string(pod.Status.Phase)
		}
		return d
	}
	noted, ip := pod.Annotations[v1alpha1.AnnotationAddress], pod.Status.PodIP
	if noted != "" && ip != "" && ip != noted {
		return &PodStatusDetail{Reason: ReasonAddressChanged, Message: fmt.Sprintf("the pod's address changed from %s to %s", noted, ip)}
	}
	// While an image change is under way the old container's end is what was asked
	// for.
	switch v1alpha1.PhaseOf(pod) {
	case v1alpha1.PodRunning:
		return lost(pod)
	case v1alpha1.PodStarting:
		if d, _ := Restarted(pod); d != nil {
			return d
		}
		return hopeless(pod)
	}
	return nil
}

// lost returns a container that ended after its pod was running: the sandbox's state is
// lost with it, also if the kubelet starts it again.
func lost(pod *corev1.Pod) *PodStatusDetail {
	if t := terminated(pod); t != nil {
		return fromTerminated(t.name, t.state)
	}
	d, _ := Restarted(pod)
	return d
}

type ended struct {
	name  string
	state *corev1.ContainerStateTerminated
}

// terminated returns the first container that has ended, a failed one before
// others. An init container that has done its work is none.
func terminated(pod *corev1.Pod) *ended {
	for _, c := range pod.Status.InitContainerStatuses {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			return &ended{c.Name, t}
		}
	}
	var first *ended
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			if t.ExitCode != 0 {
				return &ended{c.Name, t}
			}
			if first == nil {
				first = &ended{c.Name, t}
			}
		}
	}
	return first
}

func fromTerminated(name string, t *corev1.ContainerStateTerminated) *PodStatusDetail {
	code := t.ExitCode
	d := &PodStatusDetail{Reason: t.Reason, ExitCode: &code, FinishedAt: t.FinishedAt.Time}
	switch {
	case t.Reason == "OOMKilled":
		d.Message = sentence("container "+name+" was killed for using too much memory", "", t.Message)
	case t.Signal != 0:
		d.Message = sentence(fmt.Sprintf("container %s was ended by signal %d", name, t.Signal), "", t.Message)
	default:
		d.Message = sentence(fmt.Sprintf("container %s ended with exit code %d", name, t.ExitCode), "", t.Message)
	}
	if d.Reason == "" || d.Reason == "Error" {
		d.Reason = ReasonCrashed
	}
	return d
}

// fromRestarted is fromTerminated of a container that was started again.
func fromRestarted(name string, t *corev1.ContainerStateTerminated) *PodStatusDetail {
	if t.Reason == ReasonRestarted {
		return &PodStatusDetail{Reason: ReasonRestarted, Message: "container " + name + " was started again, and what it held is lost"}
	}
	d := fromTerminated(name, t)
	if d.Reason == "Completed" {
		d.Reason = ReasonRestarted
	}
	return d
}

// hopeless returns an image error that no later try can mend.
func hopeless(pod *corev1.Pod) *PodStatusDetail {
	for _, c := range containerStatuses(pod) {
		if w := c.State.Waiting; w != nil && (w.Reason == "InvalidImageName" || w.Reason == "ErrImageNeverPull") {
			return &PodStatusDetail{Reason: w.Reason, Message: sentence("container "+c.Name+" cannot start", w.Reason, w.Message)}
		}
	}
	return nil
}

// NotReady explains a startup timeout by what the containers wait for. It is pure.
func NotReady(pod *corev1.Pod, within time.Duration) string {
	text := fmt.Sprintf("not Ready within %s", within)
	for _, c := range containerStatuses(pod) {
		if w := c.State.Waiting; w != nil && w.Reason != "" {
			return sentence(text+": container "+c.Name+" is waiting", w.Reason, w.Message)
		}
		if t := c.LastTerminationState.Terminated; t != nil {
			return text + ": " + fromTerminated(c.Name, t).Message
		}
	}
	if _, unclear := RunsItsImages(pod); len(unclear) > 0 {
		if s := statusOf(pod, unclear[0]); s != nil {
			return text + ": container " + s.Name + " is reported to run " + s.Image
		}
	}
	return text
}

func sentence(what, reason, message string) string {
	var tail []string
	for _, s := range []string{reason, strings.TrimSpace(message)} {
		if s != "" && !slices.Contains(tail, s) {
			tail = append(tail, s)
		}
	}
	if len(tail) == 0 {
		return what
	}
	return what + ": " + strings.Join(tail, ": ")
}

func containerStatuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}
