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

// mostEvents bounds what a detail quotes.
const mostEvents = 3

// BuildPodStatusDetailWithEvents is BuildSandboxStatusDetailFromPod with the pod's
// latest warning Events, also quoted in the message. nil means that nothing is known
// to be wrong. An error comes with what the pod alone tells. With a nil clientset
// there are no Events.
func BuildPodStatusDetailWithEvents(ctx context.Context, clientset kubernetes.Interface, pod *corev1.Pod) (*PodStatusDetail, error) {
	d := BuildSandboxStatusDetailFromPod(pod)
	if clientset == nil {
		return d, nil
	}
	list, err := clientset.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(pod.UID), "type": corev1.EventTypeWarning}.String(),
		Limit:         100,
	})
	if err != nil {
		return d, fmt.Errorf("listing the events of pod %s: %w", pod.Name, err)
	}
	return withEvents(d, list.Items).of(pod), nil
}

// withEvents adds the latest of the events, each message once, and quotes in the
// detail's message those that it does not say already. It is pure.
func withEvents(d *PodStatusDetail, events []corev1.Event) *PodStatusDetail {
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return happened(&b).Compare(happened(&a).Time) })
	var quoted []string
	for i := range events {
		e := diagnostic(&events[i])
		if d != nil && len(d.Events) == mostEvents {
			break
		}
		if e.Message == "" || d != nil && slices.ContainsFunc(d.Events, func(o PodDiagnosticEvent) bool { return o.Reason == e.Reason && o.Message == e.Message }) {
			continue
		}
		if d == nil {
			d = &PodStatusDetail{Reason: e.Reason, Message: "the pod has trouble"}
		}
		d.Events = append(d.Events, e)
		if !strings.Contains(d.Message, e.Message) {
			quoted = append(quoted, e.Reason+": "+e.Message)
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
