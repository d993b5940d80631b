package podstate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
)

const (
	// mostEvents bounds what a detail has.
	mostEvents = 20
	// mostQuoted bounds how many of them its message quotes.
	mostQuoted = 3
)

// BuildPodStatusDetailWithEvents is BuildSandboxStatusDetailFromPod with the pod's
// latest Events, 20 at most; the latest warnings are quoted in the message, also those that
// are not among the 20. It knows of a pod that pulls an image (ReasonPulling), too. nil means that nothing is known
// to be wrong. An error comes with what the pod alone tells. With a nil clientset
// there are no Events.
func BuildPodStatusDetailWithEvents(ctx context.Context, clientset kubernetes.Interface, pod *corev1.Pod) (*PodStatusDetail, error) {
	d := BuildSandboxStatusDetailFromPod(pod)
	if clientset == nil {
		return d, nil
	}
	list, err := clientset.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(pod.UID)}.String(),
		Limit:         500,
	})
	if err != nil {
		return d, fmt.Errorf("listing the events of pod %s: %w", pod.Name, err)
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return happened(&b).Compare(happened(&a).Time) })
	if d == nil {
		d = pulling(pod, list.Items)
	}
	return withEvents(d, list.Items).of(pod), nil
}

// pulling tells of a container that waits for its image; events are the pod's, the latest
// first. nil if there is none.
func pulling(pod *corev1.Pod, events []corev1.Event) *PodStatusDetail {
	for _, c := range containerStatuses(pod) {
		if c.State.Waiting == nil {
			continue
		}
		for i := range events {
			e := &events[i]
			if e.InvolvedObject.FieldPath != "spec.containers{"+c.Name+"}" && e.InvolvedObject.FieldPath != "spec.initContainers{"+c.Name+"}" {
				continue
			}
			if e.Reason == ReasonPulling {
				return &PodStatusDetail{Reason: ReasonPulling, Message: sentence("container "+c.Name+" waits for its image", "", e.Message)}
			}
			break // its latest event is of something else
		}
	}
	return nil
}

// withEvents adds the latest of the events, which it is given in that order, each message
// once, and quotes in the detail's message the warnings that it does not say already. A pod
// with a warning has trouble. It is pure.
func withEvents(d *PodStatusDetail, events []corev1.Event) *PodStatusDetail {
	if d == nil {
		at := slices.IndexFunc(events, func(e corev1.Event) bool { return e.Type == corev1.EventTypeWarning && e.Message != "" })
		if at < 0 {
			return nil
		}
		d = &PodStatusDetail{Reason: events[at].Reason, Message: "the pod has trouble"}
	}
	var quoted []string
	for i := range events {
		e := diagnostic(&events[i])
		if e.Message == "" {
			continue
		}
		known := slices.ContainsFunc(d.Events, func(o PodDiagnosticEvent) bool { return o.Reason == e.Reason && o.Message == e.Message })
		if !known && len(d.Events) < mostEvents {
			d.Events = append(d.Events, e)
		}
		warning := e.Reason + ": " + e.Message
		if events[i].Type == corev1.EventTypeWarning && len(quoted) < mostQuoted && !slices.Contains(quoted, warning) && !strings.Contains(d.Message, e.Message) {
			quoted = append(quoted, warning)
		}
	}
	if len(quoted) > 0 {
		d.Message += " (" + strings.Join(quoted, "; ") + ")"
	}
	return d
}

func diagnostic(e *corev1.Event) PodDiagnosticEvent {
	d := PodDiagnosticEvent{Reason: e.Reason, Message: strings.TrimSpace(e.Message), Count: max(e.Count, 1)}
	if e.Series != nil {
		d.Count = max(d.Count, e.Series.Count)
	}
	if at := happened(e); !at.IsZero() {
		d.LastTimestamp = at.UTC().Format(time.RFC3339)
	}
	return d
}

func happened(e *corev1.Event) *metav1.Time {
	switch {
	case !e.LastTimestamp.IsZero():
		return &e.LastTimestamp
	case e.Series != nil:
		t := metav1.NewTime(e.Series.LastObservedTime.Time)
		return &t
	default:
		t := metav1.NewTime(e.EventTime.Time)
		return &t
	}
}
