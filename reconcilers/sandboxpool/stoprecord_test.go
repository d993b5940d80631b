package sandboxpool

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// TestStopRecords: what is kept of a pod says what happened, in words.
func TestStopRecords(t *testing.T) {
	terminated := func(code int32, reason string) func(*view) {
		return func(v *view) {
			v.pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: code, Reason: reason, FinishedAt: metav1.NewTime(now.Add(-3 * time.Second))}}
		}
	}
	disrupted := func(reason, message string) func(*view) {
		return func(v *view) {
			deleting(v)
			v.pod.Spec.NodeName = "n1"
			v.pod.Status.Conditions = append(v.pod.Status.Conditions, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message})
		}
	}
	for _, tt := range []struct {
		name    string
		end     v1alpha1.EndReason
		change  func(*view)
		stop    v1alpha1.StopReason
		reason  string
		message string
		exit    int32 // -1: none
	}{
		{"released", v1alpha1.EndReleased, func(*view) {}, v1alpha1.StopReleased, "", "", -1},
		{"idle", v1alpha1.EndIdleTimeout, func(*view) {}, v1alpha1.StopReleased, "", "", -1},
		{"completed", v1alpha1.EndCompleted, terminated(0, "Completed"), v1alpha1.StopCompleted, "", "", 0},
		{"canceled", v1alpha1.EndCanceled, func(*view) {}, v1alpha1.StopCanceled, "", "", -1},
		{"crashed", v1alpha1.EndFailed, terminated(3, "Error"), v1alpha1.StopFailed, "Crashed", "container main ended with exit code 3", 3},
		{"out of memory", v1alpha1.EndFailed, terminated(137, "OOMKilled"), v1alpha1.StopFailed, "OOMKilled", "too much memory", 137},
		{"crashed, and marked as failed since", v1alpha1.EndFailed, func(v *view) {
			terminated(3, "Error")(v)
			v.pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodFailed)
			v.pod.Annotations[v1alpha1.AnnotationStartedAt] = now.Add(-time.Minute).Format(time.RFC3339Nano)
			v.pod.Annotations[v1alpha1.AnnotationFailureReason] = "Crashed"
			v.pod.Annotations[v1alpha1.AnnotationFailureMessage] = "container main ended with exit code 3"
		}, v1alpha1.StopFailed, "Crashed", "exit code 3", 3},
		{"evicted", v1alpha1.EndFailed, func(v *view) {
			v.pod.Status.Phase, v.pod.Status.Reason, v.pod.Status.Message = corev1.PodFailed, "Evicted", "the node was low on memory"
		}, v1alpha1.StopFailed, "Evicted", "low on memory", -1},
		{"evicted by request", v1alpha1.EndFailed, disrupted("EvictionByEvictionAPI", "Eviction API: evicting"), v1alpha1.StopFailed, "Evicted", "was evicted: Eviction API", -1},
		{"node lost", v1alpha1.EndFailed, disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
			v1alpha1.StopFailed, "NodeLost", "node n1 of its pod pod was lost or drained", -1},
		{"preempted", v1alpha1.EndFailed, disrupted("PreemptionByScheduler", ""), v1alpha1.StopFailed, "Preempted", "made room", -1},
		{"node lost, as pods' garbage collection says it", v1alpha1.EndFailed, func(v *view) {
			deleting(v)
			v.pod.Spec.NodeName, v.pod.Status.Reason = "n1", "NodeLost"
		}, v1alpha1.StopFailed, "NodeLost", "node n1 of its pod pod was lost", -1},
		{"deleted", v1alpha1.EndFailed, deleting, v1alpha1.StopFailed, "Deleted", "its pod pod was deleted", -1},
		{"startup timeout", v1alpha1.EndStartupTimeout, func(v *view) {
			v.pod.Annotations[v1alpha1.AnnotationFailureReason] = ReasonStartupTimeout
			v.pod.Annotations[v1alpha1.AnnotationFailureMessage] = "not Ready within 1m0s: container main is waiting: ErrImagePull"
		}, v1alpha1.StopFailed, "StartupTimeout", "ErrImagePull", -1},
		{"other address", v1alpha1.EndFailed, func(v *view) { v.pod.Status.PodIP = "10.0.0.2" }, v1alpha1.StopFailed, "AddressChanged", "from 10.0.0.1 to 10.0.0.2", -1},
		{"unknown", v1alpha1.EndFailed, func(*view) {}, v1alpha1.StopFailed, "Failed", "why it ended", -1},
		{"stopped before", v1alpha1.EndFailed, func(v *view) {
			v.pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodStopping)
			v.pod.Annotations[v1alpha1.AnnotationStop] = `{"stopReason":"Canceled","failureReason":"NoSandbox"}`
		}, v1alpha1.StopCanceled, "NoSandbox", "", -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := claimedPod(v1alpha1.PodRunning, tt.change)
			r := CaptureSandboxStopRecord(v.pod, &v1alpha1.End{Reason: tt.end, Message: "why it ended", At: metav1.NewTime(now)})
			exit := int32(-1)
			if r.ExitCode != nil {
				exit = *r.ExitCode
			}
			if r.StopReason != tt.stop || r.FailureReason != tt.reason || !strings.Contains(r.FailureMessage, tt.message) || exit != tt.exit {
				t.Errorf("%+v, exit code %d", r, exit)
			}
			if exit >= 0 && !r.TerminatedAt.Time.Equal(now.Add(-3*time.Second)) {
				t.Errorf("terminated at %v, not when the container ended", r.TerminatedAt)
			}
		})
	}
	if r := RecordWithoutPod("gone", &v1alpha1.End{Reason: v1alpha1.EndFailed, Message: "its pod gone is gone", At: metav1.NewTime(now)}); r.PodName != "gone" || r.FailureReason != "Deleted" || r.FailureMessage == "" {
		t.Errorf("%+v", r)
	}
}

func TestEventsAreQuoted(t *testing.T) {
	event := func(reason, message string, ago time.Duration) corev1.Event {
		return corev1.Event{Reason: reason, Message: message, LastTimestamp: metav1.NewTime(now.Add(-ago))}
	}
	events := []corev1.Event{
		event("FailedMount", "no such secret", time.Minute), event("FailedMount", "no such secret", time.Second),
		event("Failed", "old", time.Hour), event("Failed", "older", 2*time.Hour), event("Failed", "too old", 3*time.Hour),
	}
	d := withEvents(nil, events)
	if want := "the pod has trouble (FailedMount: no such secret; Failed: old; Failed: older)"; d == nil || d.Reason != "FailedMount" || d.Message != want {
		t.Errorf("%+v", d)
	}
	if d := withEvents(&PodStatusDetail{Reason: "X", Message: "x: no such secret"}, events[:1]); d.Message != "x: no such secret" {
		t.Errorf("said twice: %q", d.Message)
	}
	if d := withEvents(nil, nil); d != nil {
		t.Errorf("nothing is known, and yet %+v", d)
	}
}

// TestReleaseSandboxPod has a claim released by somebody whose view is old.
func TestReleaseSandboxPod(t *testing.T) {
	l := newLagging(t, 1)
	l.reconcile(1)
	l.catchUp()
	pod := l.cache[0].DeepCopy()
	if _, err := ReleaseSandboxPod(t.Context(), l.real, pod, ReleaseSandboxPodOptions{}); err == nil {
		t.Error("a pod without a claim was released")
	}
	pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodRunning)
	pod.Annotations[v1alpha1.AnnotationClaim] = "c"
	if err := l.real.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	old := pod.DeepCopy()
	old.Annotations[v1alpha1.AnnotationClaim] = "before"
	conflicts := 2
	c := interceptor.NewClient(l.real, interceptor.Funcs{Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if conflicts--; conflicts >= 0 {
			return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, o.GetName(), errors.New("busy"))
		}
		return asServer(w.Patch(ctx, o, p, opts...))
	}})
	if _, err := ReleaseSandboxPod(t.Context(), c, pod, ReleaseSandboxPodOptions{DisableRetry: true}); !apierrors.IsConflict(err) {
		t.Errorf("without retries: %v, want the conflict", err)
	}
	for _, wrong := range []struct {
		pod *corev1.Pod
		o   ReleaseSandboxPodOptions
	}{{old, ReleaseSandboxPodOptions{}}, {pod, ReleaseSandboxPodOptions{ExpectedCurrentSandboxPhase: v1alpha1.PodStarting}}} {
		if _, err := ReleaseSandboxPod(t.Context(), c, wrong.pod, wrong.o); !errors.Is(err, ErrPodMoved) {
			t.Errorf("another claim, or another phase: %v", err)
		}
	}
	code := int32(7)
	out, err := ReleaseSandboxPod(t.Context(), c, pod, ReleaseSandboxPodOptions{StopReason: v1alpha1.StopFailed, FailureReason: "Crashed", ExitCode: &code})
	if err != nil {
		t.Fatal(err)
	}
	if r := writtenRecord(out); v1alpha1.PhaseOf(out) != v1alpha1.PodStopping || r == nil || r.StopReason != v1alpha1.StopFailed || *r.ExitCode != 7 || r.PodName != pod.Name {
		t.Errorf("phase %s, record %+v", v1alpha1.PhaseOf(out), r)
	}
}
