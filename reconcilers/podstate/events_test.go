package podstate

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

func TestEventsAreQuoted(t *testing.T) {
	event := func(reason, message string, ago time.Duration) corev1.Event {
		return corev1.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message, LastTimestamp: metav1.NewTime(now.Add(-ago))}
	}
	events := []corev1.Event{
		event("FailedMount", "no such secret", time.Second), event("FailedMount", "no such secret", time.Minute),
		event("Failed", "old", time.Hour), event("Failed", "older", 2*time.Hour), event("Failed", "too old", 3*time.Hour),
	}
	events[0].Count = 7
	d := withEvents(nil, events)
	if want := "the pod has trouble (FailedMount: no such secret; Failed: old; Failed: older)"; d == nil || d.Reason != "FailedMount" || d.Message != want {
		t.Errorf("%+v", d)
	}
	if want := (PodDiagnosticEvent{Reason: "FailedMount", Message: "no such secret", LastTimestamp: "2026-01-02T03:04:04Z", Count: 7}); len(d.Events) != 4 || d.Events[0] != want || d.Events[2].Count != 1 {
		t.Errorf("events %+v, want four and first %+v", d.Events, want)
	}
	if d := withEvents(&PodStatusDetail{Reason: "X", Message: "x: no such secret"}, events[:1]); d.Message != "x: no such secret" || len(d.Events) != 1 {
		t.Errorf("said twice: %+v", d)
	}
	if d := withEvents(nil, nil); d != nil {
		t.Errorf("nothing is known, and yet %+v", d)
	}
	for i := range 30 {
		events = append(events, corev1.Event{Type: corev1.EventTypeNormal, Reason: "Scheduled", Message: strconv.Itoa(i)})
	}
	if d := withEvents(nil, events); len(d.Events) != 20 || strings.Contains(d.Message, "Scheduled") {
		t.Errorf("of many: %+v", d)
	}
	if d := withEvents(nil, slices.Concat(events[5:], events[:1])); d == nil || len(d.Events) != 20 || d.Message != "the pod has trouble (FailedMount: no such secret)" {
		t.Errorf("of a warning before many: %+v", d)
	}
	if d := withEvents(nil, events[5:]); d != nil {
		t.Errorf("nothing is wrong, and yet %+v", d)
	}
}

// A container that waits, and whose latest Event says so, pulls its image.
func TestPulling(t *testing.T) {
	event := func(reason, container string, ago time.Duration) corev1.Event {
		return corev1.Event{Type: corev1.EventTypeNormal, Reason: reason, Message: reason + " image a", LastTimestamp: metav1.NewTime(now.Add(-ago)),
			InvolvedObject: corev1.ObjectReference{FieldPath: "spec.containers{" + container + "}"}}
	}
	for _, c := range []struct {
		name    string
		waiting string
		events  []corev1.Event
		want    string
	}{
		{"pulling", "ContainerCreating", []corev1.Event{event("Pulling", "main", time.Second)}, "Pulling"},
		{"pulled since", "ContainerCreating", []corev1.Event{event("Pulling", "main", time.Minute), event("Pulled", "main", time.Second)}, ""},
		{"pulling again", "ContainerCreating", []corev1.Event{event("Pulling", "main", time.Second), event("Pulled", "main", time.Minute)}, "Pulling"},
		{"another container", "ContainerCreating", []corev1.Event{event("Pulling", "side", time.Second)}, ""},
		{"the kubelet says more", "ErrImagePull", []corev1.Event{event("Pulling", "main", time.Second)}, "ErrImagePull"},
		{"it runs", "", []corev1.Event{event("Pulling", "main", time.Second)}, ""},
	} {
		pod := newTestPod(v1alpha1.PodWarming)
		if c.waiting != "" {
			pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: c.waiting}}
		}
		clientset := fake.NewClientset()
		clientset.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &corev1.EventList{Items: c.events}, nil
		})
		d, err := BuildPodStatusDetailWithEvents(t.Context(), clientset, pod)
		if err != nil || (d == nil) != (c.want == "") || d != nil && (d.Reason != c.want || len(d.Events) != len(c.events)) {
			t.Errorf("%s: %+v, %v, want %q", c.name, d, err, c.want)
		}
	}
}

// The Events that are read are the pod's own, also of one whose detail is made
// of them alone; without a clientset there are none.
func TestDetailWithEvents(t *testing.T) {
	pod := newTestPod(v1alpha1.PodWarming)
	for _, tt := range []struct {
		name  string
		react func(clienttesting.Action) (bool, runtime.Object, error)
		want  string
		fails bool
	}{
		{"none", func(clienttesting.Action) (bool, runtime.Object, error) { return true, &corev1.EventList{}, nil }, "", false},
		{"one", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if got, want := a.(clienttesting.ListAction).GetListRestrictions().Fields.String(), "involvedObject.uid=u"; got != want {
				t.Errorf("asked for %q, want %q", got, want)
			}
			return true, &corev1.EventList{Items: []corev1.Event{{Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: "no such secret"}}}, nil
		}, "pod Running FailedMount: the pod has trouble (FailedMount: no such secret)", false},
		{"refused", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no") }, "", true},
	} {
		clientset := fake.NewClientset()
		clientset.PrependReactor("list", "events", tt.react)
		d, err := BuildPodStatusDetailWithEvents(t.Context(), clientset, pod)
		got := ""
		if d != nil {
			got = d.PodName + " " + d.Phase + " " + d.Reason + ": " + d.Message
		}
		if got != tt.want || (err != nil) != tt.fails {
			t.Errorf("%s: %q, %v", tt.name, got, err)
		}
	}
	if d, err := BuildPodStatusDetailWithEvents(t.Context(), nil, pod); d != nil || err != nil {
		t.Errorf("without a clientset: %+v, %v", d, err)
	}
	over := newTestPod(v1alpha1.PodRunning, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
	if d, err := BuildPodStatusDetailWithEvents(t.Context(), nil, over); d == nil || d.Reason != "Succeeded" || d.Events != nil || err != nil {
		t.Errorf("without a clientset: %+v, %v", d, err)
	}
}
