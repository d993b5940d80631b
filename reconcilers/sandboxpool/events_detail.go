package sandboxpool

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
)

// mostEvents bounds what a detail quotes.
const mostEvents = 3

// BuildPodStatusDetailWithEvents is BuildSandboxStatusDetailFromPod with the
// pod's latest warning Events quoted. nil means that nothing is known to be
// wrong. An error comes with what the pod alone tells.
func BuildPodStatusDetailWithEvents(ctx context.Context, clientset kubernetes.Interface, pod *corev1.Pod) (*PodStatusDetail, error) {
	d := BuildSandboxStatusDetailFromPod(pod)
	list, err := clientset.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(pod.UID), "type": corev1.EventTypeWarning}.String(),
		Limit:         100,
	})
	if err != nil {
		return d, fmt.Errorf("listing the events of pod %s: %w", pod.Name, err)
	}
	return withEvents(d, list.Items), nil
}

// withEvents quotes each message once, the latest first. It is pure.
func withEvents(d *PodStatusDetail, events []corev1.Event) *PodStatusDetail {
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return happened(&b).Compare(happened(&a).Time) })
	var said []string
	for i := range events {
		e := &events[i]
		if len(said) == mostEvents {
			break
		}
		text := e.Reason + ": " + strings.TrimSpace(e.Message)
		if e.Message == "" || d != nil && strings.Contains(d.Message, strings.TrimSpace(e.Message)) || slices.Contains(said, text) {
			continue
		}
		said = append(said, text)
		if d == nil {
			d = &PodStatusDetail{Reason: e.Reason, Message: "the pod has trouble"}
		}
	}
	if len(said) > 0 {
		d.Message += " (" + strings.Join(said, "; ") + ")"
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
