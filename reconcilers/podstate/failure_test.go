package podstate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// newTestPod is a Ready pod in this phase of ours.
func newTestPod(phase v1alpha1.PodPhase, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "pod", UID: "u",
			CreationTimestamp: metav1.NewTime(now.Add(-10 * time.Second)),
			Labels:            map[string]string{v1alpha1.LabelPhase: string(phase)},
			Annotations:       map[string]string{},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "local/echo"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.1",
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "main", Image: "local/echo:latest", ContainerID: "run://1",
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		},
	}
	if phase != v1alpha1.PodWarming {
		pod.Annotations[v1alpha1.AnnotationAddress] = "10.0.0.1"
		pod.Annotations[v1alpha1.AnnotationContainers] = EncodeContainers(ContainersOf(pod))
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

// claimedPod is newTestPod with a claim, of ten seconds ago.
func claimedPod(phase v1alpha1.PodPhase, change ...func(*corev1.Pod)) *corev1.Pod {
	claim := func(pod *corev1.Pod) {
		pod.Labels[v1alpha1.LabelSandboxID] = "s"
		pod.Annotations[v1alpha1.AnnotationClaim] = "c"
		pod.Annotations[v1alpha1.AnnotationClaimedAt] = now.Add(-10 * time.Second).Format(time.RFC3339Nano)
	}
	return newTestPod(phase, append([]func(*corev1.Pod){claim}, change...)...)
}

func deleting(pod *corev1.Pod) { at := metav1.NewTime(now); pod.DeletionTimestamp = &at }

func TestFailureMessages(t *testing.T) {
	claimedAt := now.Add(700 * time.Millisecond)
	// anew is a container that ended so long after the claim, and runs again.
	anew := func(id string, restarts int32, after time.Duration) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Annotations[v1alpha1.AnnotationClaimedAt] = claimedAt.Format(time.RFC3339Nano)
			s := &pod.Status.ContainerStatuses[0]
			s.ContainerID, s.RestartCount = id, restarts
			s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
				ExitCode: 1, FinishedAt: metav1.NewTime(claimedAt.Add(after).Truncate(time.Second)),
			}
		}
	}
	container := func(s corev1.ContainerStatus) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { s.Name = "main"; pod.Status.ContainerStatuses[0] = s }
	}
	for _, tt := range []struct {
		name            string
		change          func(*corev1.Pod)
		reason, message string
	}{
		{"nothing", func(*corev1.Pod) {}, "", ""},
		{"exit code", container(corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error"}}}),
			ReasonCrashed, "container main ended with exit code 2"},
		{"signal", container(corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 139, Signal: 11}}}),
			ReasonCrashed, "container main was ended by signal 11"},
		{"out of memory", container(corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}}),
			"OOMKilled", "container main was killed for using too much memory"},
		{"started again", anew("run://2", 1, time.Second), ReasonCrashed, "container main ended with exit code 1"},
		{"started again in the second of the claim", anew("run://2", 1, -500*time.Millisecond), ReasonCrashed, "container main ended with exit code 1"},
		{"started again, the kubelet forgot the old one", func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].ContainerID = "run://2" },
			ReasonRestarted, "container main was started again, and what it held is lost"},
		{"started again without an ID", anew("", 1, time.Second), ReasonCrashed, "container main ended with exit code 1"},
		{"started again before it was claimed", anew("run://2", 1, -2*time.Second), "", ""},
		{"about to be started again", func(pod *corev1.Pod) {
			anew("run://1", 0, time.Second)(pod)
			pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
			pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.ContainerID = "run://1"
		}, ReasonCrashed, "container main ended with exit code 1"},
		{"init container that has done its work", func(pod *corev1.Pod) {
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
		}, "", ""},
		{"evicted", func(pod *corev1.Pod) {
			pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", "low on memory"
		}, "Evicted", "the pod is over: Evicted: low on memory"},
		{"over", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }, "Succeeded", "the pod is over"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := Failure(claimedPod(v1alpha1.PodRunning, tt.change))
			if d == nil {
				d = &PodStatusDetail{}
			}
			if d.Reason != tt.reason || d.Message != tt.message {
				t.Errorf("%q, %q", d.Reason, d.Message)
			}
			if named := d.PodName == "pod" && d.Phase != ""; named != (tt.reason != "") {
				t.Errorf("it is of pod %q, phase %q", d.PodName, d.Phase)
			}
		})
	}
	pod := newTestPod(v1alpha1.PodWarming, container(corev1.ContainerStatus{State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}}))
	if got, want := NotReady(pod, time.Minute), "not Ready within 1m0s: container main is waiting: ErrImagePull: no such image"; got != want {
		t.Errorf("got %q", got)
	}
	if d := BuildSandboxStatusDetailFromPod(pod); d == nil || d.Reason != "ErrImagePull" {
		t.Errorf("detail %+v", d)
	}
}

func TestSameImage(t *testing.T) {
	for _, tt := range []struct {
		reported, wanted string
		same             bool
	}{
		{"local/echo:latest", "local/echo", true},
		{"local/echo", "local/echo:latest", true},
		{"example.org/library/echo:1", "echo:1", true},
		{"local/echo:1", "local/echo:2", false},
		{"example.org:5000/echo:latest", "example.org:5000/echo", true},
		{"local/notecho:latest", "echo", false},
		{"e@sha256:1", "e@sha256:1", true},
	} {
		if got := sameImage(tt.reported, tt.wanted); got != tt.same {
			t.Errorf("%s, %s: %v", tt.reported, tt.wanted, got)
		}
	}
}
