package sandboxpool

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/podstate"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const startup = time.Minute

func newTestPod(phase v1alpha1.PodPhase, change ...func(*view)) view {
	v := view{startup: startup, waited: 10 * time.Second, pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "pod", UID: "u", Finalizers: []string{FinalizerName},
			CreationTimestamp: metav1.NewTime(now.Add(-10 * time.Second)),
			Labels:            map[string]string{v1alpha1.LabelPhase: string(phase)},
			Annotations:       map[string]string{v1alpha1.AnnotationTemplateHash: "h"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "local/echo"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.1",
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "main", Image: "local/echo:latest", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		},
	}}
	v.pod.Status.ContainerStatuses[0].ContainerID = "run://1"
	if phase != v1alpha1.PodWarming {
		v.pod.Annotations[v1alpha1.AnnotationAddress] = "10.0.0.1"
		v.pod.Annotations[v1alpha1.AnnotationContainers] = podstate.EncodeContainers(podstate.ContainersOf(v.pod))
	}
	for _, f := range change {
		f(&v)
	}
	return v
}

// claimedPod is a pod that a live sandbox names.
func claimedPod(phase v1alpha1.PodPhase, change ...func(*view)) view {
	v := newTestPod(phase)
	v.pod.Labels[v1alpha1.LabelSandboxID] = "s"
	v.pod.Annotations[v1alpha1.AnnotationClaim] = "c"
	v.pod.Annotations[v1alpha1.AnnotationClaimedAt] = now.Add(-10 * time.Second).Format(time.RFC3339Nano)
	v.sandbox = &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: v1alpha1.SandboxSpec{
		Namespace: "n", Binding: &v1alpha1.Binding{ClaimID: "c", PodName: "pod", PodUID: "u"},
	}}
	for _, f := range change {
		f(&v)
	}
	return v
}

func unready(v *view) {
	v.pod.Status.Conditions[0].Status = corev1.ConditionFalse
	v.pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Second))
}
func deleting(v *view)    { at := metav1.NewTime(now); v.pod.DeletionTimestamp = &at }
func poolDeleted(v *view) { v.drain = true }
func noSandbox(v *view) {
	v.sandbox = nil
}
func restoring(v *view) {
	v.sandbox.Spec.PauseMode, v.sandbox.Spec.Restore = v1alpha1.PauseHibernate, &v1alpha1.Restore{Checkpoint: "cp"}
}
func end(v *view) { v.sandbox.Spec.End = &v1alpha1.End{Reason: v1alpha1.EndReleased} }
func endOnRecord(v *view) {
	end(v)
	v.sandbox.Status.Phase, v.sandbox.Status.Address = v1alpha1.SandboxEnding, "10.0.0.1"
}

func TestDecide(t *testing.T) {
	for _, tt := range []struct {
		name    string
		view    view
		want    step
		reason  string
		recheck time.Duration
	}{
		{name: "warming and Ready", view: newTestPod(v1alpha1.PodWarming), want: stepIdle},
		{name: "warming", view: newTestPod(v1alpha1.PodWarming, unready), recheck: 50 * time.Second},
		{name: "warming without an address", view: newTestPod(v1alpha1.PodWarming, func(v *view) { v.pod.Status.PodIP = "" }), recheck: 50 * time.Second},
		{name: "warming for too long", view: newTestPod(v1alpha1.PodWarming, unready, func(v *view) { v.startup = 10 * time.Second }), want: stepFail, reason: podstate.ReasonStartupTimeout},
		{name: "warming from an old template", view: newTestPod(v1alpha1.PodWarming, func(v *view) { v.outdated = true }), want: stepDelete, reason: "Outdated"},
		{name: "idle", view: newTestPod(v1alpha1.PodIdle)},
		{name: "idle, unready", view: newTestPod(v1alpha1.PodIdle, unready), recheck: unreadyPatience - time.Second},
		{name: "idle, unready for long", view: newTestPod(v1alpha1.PodIdle, unready, func(v *view) {
			v.pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-unreadyPatience))
		}), want: stepFail, reason: podstate.ReasonUnready},
		{name: "idle, from an old template", view: newTestPod(v1alpha1.PodIdle, func(v *view) { v.outdated = true })},
		{name: "idle, started again", view: newTestPod(v1alpha1.PodIdle, func(v *view) { v.pod.Status.ContainerStatuses[0].ContainerID = "run://2" }), want: stepRecord},
		{name: "idle, other address", view: newTestPod(v1alpha1.PodIdle, func(v *view) { v.pod.Status.PodIP = "10.0.0.2" }), want: stepFail, reason: podstate.ReasonAddressChanged},
		{name: "idle, address lost", view: newTestPod(v1alpha1.PodIdle, func(v *view) { v.pod.Status.PodIP = "" })},
		{name: "starting, image runs", view: claimedPod(v1alpha1.PodStarting), want: stepRunning},
		{name: "starting, old image runs", view: claimedPod(v1alpha1.PodStarting, func(v *view) { v.pod.Spec.Containers[0].Image = "local/other" }), recheck: 50 * time.Second},
		{name: "starting, another container was started again", view: claimedPod(v1alpha1.PodStarting, func(v *view) { v.pod.Status.ContainerStatuses[0].ContainerID = "run://2" }),
			want: stepFail, reason: podstate.ReasonRestarted},
		{name: "starting, impossible image", view: claimedPod(v1alpha1.PodStarting, func(v *view) {
			v.pod.Spec.Containers[0].Image = "local/OTHER"
			v.pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "InvalidImageName"}}
		}), want: stepFail, reason: "InvalidImageName"},
		{name: "running, started again before the claim", view: claimedPod(v1alpha1.PodRunning, func(v *view) {
			s := &v.pod.Status.ContainerStatuses[0]
			s.ContainerID, s.RestartCount = "run://2", 1
			s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now.Add(-time.Minute))}
		}), want: stepRecord},
		{name: "starting, old container ends", view: claimedPod(v1alpha1.PodStarting, func(v *view) {
			v.pod.Spec.Containers[0].Image = "local/other"
			v.pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}}
		}), recheck: 50 * time.Second},
		{name: "starting for too long", view: claimedPod(v1alpha1.PodStarting, unready, func(v *view) { v.startup = 10 * time.Second }), want: stepFail, reason: podstate.ReasonStartupTimeout},
		{name: "running", view: claimedPod(v1alpha1.PodRunning)},
		{name: "running, unready", view: claimedPod(v1alpha1.PodRunning, unready)},
		{name: "running, crashed", view: claimedPod(v1alpha1.PodRunning, func(v *view) {
			v.pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		}), want: stepFail, reason: podstate.ReasonCrashed},
		{name: "running, ended, not stopped yet", view: claimedPod(v1alpha1.PodRunning, endOnRecord)},
		{name: "stopping, not on record", view: claimedPod(v1alpha1.PodStopping, end)},
		{name: "stopping, on record", view: claimedPod(v1alpha1.PodStopping, endOnRecord), want: stepDelete, reason: "Ended"},
		{name: "stopping, record of another address", view: claimedPod(v1alpha1.PodStopping, endOnRecord, func(v *view) { v.sandbox.Status.Address = "10.0.0.2" })},
		{name: "stopping, never claimed", view: newTestPod(v1alpha1.PodStopping), want: stepDelete, reason: "Ended"},
		{name: "failed, sandbox not ended", view: claimedPod(v1alpha1.PodFailed)},
		{name: "failed, never claimed", view: newTestPod(v1alpha1.PodFailed), want: stepDelete, reason: "Ended"},
		{name: "deleted, never claimed", view: newTestPod(v1alpha1.PodIdle, deleting), want: stepForget},
		{name: "deleted, claimed", view: claimedPod(v1alpha1.PodRunning, deleting)},
		{name: "deleted, ended but not on record", view: claimedPod(v1alpha1.PodRunning, deleting, end)},
		{name: "deleted, on record", view: claimedPod(v1alpha1.PodRunning, deleting, endOnRecord), want: stepForget},
		{name: "deleted, on record, finalizer gone", view: claimedPod(v1alpha1.PodRunning, deleting, endOnRecord, func(v *view) { v.pod.Finalizers = nil })},
		{name: "deleted, no sandbox", view: claimedPod(v1alpha1.PodRunning, deleting, noSandbox), recheck: fencePoll},
		{name: "deleted, no sandbox, fenced", view: claimedPod(v1alpha1.PodRunning, deleting, noSandbox, func(v *view) { v.fenced = true }), want: stepForget},
		{name: "deleted, sandbox of another claim", view: claimedPod(v1alpha1.PodRunning, deleting, endOnRecord, func(v *view) { v.sandbox.Spec.Binding.ClaimID = "d" }), recheck: fencePoll},
		{name: "drained, warming", view: newTestPod(v1alpha1.PodWarming, poolDeleted), want: stepDelete, reason: "PoolDeleted"},
		{name: "drained, idle", view: newTestPod(v1alpha1.PodIdle, poolDeleted), want: stepDelete, reason: "PoolDeleted"},
		{name: "drained, running", view: claimedPod(v1alpha1.PodRunning, poolDeleted), want: stepEnd},
		{name: "drained, restoring", view: claimedPod(v1alpha1.PodRunning, poolDeleted, restoring), want: stepRehibernate},
		{name: "drained, restoring, ended", view: claimedPod(v1alpha1.PodRunning, poolDeleted, restoring, end)},
		{name: "drained, saving", view: claimedPod(v1alpha1.PodRunning, poolDeleted, func(v *view) { v.sandbox.Spec.Paused, v.sandbox.Spec.PauseMode = true, v1alpha1.PauseHibernate }), want: stepEnd},
		{name: "drained, ended", view: claimedPod(v1alpha1.PodRunning, poolDeleted, end)},
		{name: "drained, no sandbox", view: claimedPod(v1alpha1.PodRunning, poolDeleted, noSandbox)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := decide(tt.view, now)
			if d.step != tt.want || d.reason != tt.reason || d.recheck != tt.recheck {
				t.Errorf("step %v, reason %q, recheck %v (%s)", d.step, d.reason, d.recheck, d.message)
			}
		})
	}
}
