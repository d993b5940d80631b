package sandbox

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// bound is a sandbox and the pod of its binding, claimed and running.
func bound() (*v1alpha1.Sandbox, *corev1.Pod) {
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	s.Spec = v1alpha1.SandboxSpec{Namespace: "n", Pool: "p", Binding: &v1alpha1.Binding{ClaimID: "c", PodName: "pod", PodUID: "u"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: "pod", UID: "u",
		Labels:      map[string]string{v1alpha1.LabelPhase: string(v1alpha1.PodRunning), v1alpha1.LabelSandboxID: "s"},
		Annotations: map[string]string{v1alpha1.AnnotationClaim: "c", v1alpha1.AnnotationAddress: "10.0.0.1"},
	}}
	pod.Status.PodIP = "10.0.0.1"
	return s, pod
}

// had puts the address on record as that of the claim.
func had(s *v1alpha1.Sandbox, claim string) {
	s.Status.Address, s.Status.AddressClaim = "10.0.0.1", claim
}

func setPhase(pod *corev1.Pod, p v1alpha1.PodPhase) { pod.Labels[v1alpha1.LabelPhase] = string(p) }

func unclaimed(pod *corev1.Pod, p v1alpha1.PodPhase) {
	setPhase(pod, p)
	delete(pod.Labels, v1alpha1.LabelSandboxID)
	delete(pod.Annotations, v1alpha1.AnnotationClaim)
}

func deleting(pod *corev1.Pod) { at := metav1.NewTime(now); pod.DeletionTimestamp = &at }

// ofAPI is a sandbox that the REST API made and that lost its binding.
func ofAPI(v *view) {
	at := metav1.NewTime(now.Add(time.Hour))
	v.sandbox.Spec.Team, v.sandbox.Spec.Timeouts.EndAt = "team", &at
	v.sandbox.Spec.Binding, v.pod = nil, nil
}

func TestDecide(t *testing.T) {
	const grace, startup = 5 * time.Second, 2 * time.Minute
	for _, tt := range []struct {
		name   string
		change func(*view)
		want   decision
	}{
		{"running", func(*view) {}, decision{phase: v1alpha1.SandboxRunning}},
		{"starting", func(v *view) { setPhase(v.pod, v1alpha1.PodStarting) }, decision{phase: v1alpha1.SandboxStarting}},
		{"no binding", func(v *view) { v.sandbox.Spec.Binding, v.pod = nil, nil }, decision{phase: v1alpha1.SandboxPending}},
		{"failed pod", func(v *view) {
			setPhase(v.pod, v1alpha1.PodFailed)
			v.pod.Annotations[v1alpha1.AnnotationFailureMessage] = "why"
		}, decision{phase: v1alpha1.SandboxRunning, step: stepEnd, reason: v1alpha1.EndFailed, message: "why"}},
		{"pod not ready in time", func(v *view) {
			setPhase(v.pod, v1alpha1.PodFailed)
			v.pod.Annotations[v1alpha1.AnnotationFailureReason] = "StartupTimeout"
		}, decision{phase: v1alpha1.SandboxRunning, step: stepEnd, reason: v1alpha1.EndStartupTimeout}},
		{"deleted pod", func(v *view) { deleting(v.pod) },
			decision{phase: v1alpha1.SandboxRunning, step: stepEnd, reason: v1alpha1.EndFailed, message: "its pod pod was deleted"}},
		{"stopped pod", func(v *view) { setPhase(v.pod, v1alpha1.PodStopping) },
			decision{phase: v1alpha1.SandboxRunning, step: stepEnd, reason: v1alpha1.EndFailed, message: "its pod pod was stopped"}},
		{"cache without the pod", func(v *view) { v.pod = nil; v.sandbox.Status.Phase = v1alpha1.SandboxRunning },
			decision{phase: v1alpha1.SandboxRunning, step: stepConfirm}},
		{"cache with the pod before its claim, status from after it", func(v *view) {
			unclaimed(v.pod, v1alpha1.PodIdle)
			had(v.sandbox, "c")
			v.sandbox.Status.Phase = v1alpha1.SandboxRunning
		}, decision{phase: v1alpha1.SandboxRunning, step: stepConfirm}},
		{"pod gone that had the claim", func(v *view) { v.pod, v.confirmed = nil, true; had(v.sandbox, "c") },
			decision{phase: v1alpha1.SandboxRunning, step: stepEnd, reason: v1alpha1.EndFailed, message: "its pod pod is gone"}},
		{"pod gone before the claim, in grace", func(v *view) { v.pod, v.confirmed = nil, true },
			decision{phase: v1alpha1.SandboxPending, recheck: grace}},
		{"pod gone before the claim", func(v *view) { v.pod, v.confirmed, v.unclaimedFor = nil, true, grace },
			decision{phase: v1alpha1.SandboxPending, step: stepUnbind}},
		{"claim under way", func(v *view) { unclaimed(v.pod, v1alpha1.PodIdle); v.unclaimedFor = time.Second },
			decision{phase: v1alpha1.SandboxPending, recheck: grace - time.Second}},
		{"claim owed", func(v *view) { unclaimed(v.pod, v1alpha1.PodIdle); v.unclaimedFor = grace },
			decision{phase: v1alpha1.SandboxPending, step: stepApply, recheck: grace}},
		{"claim owed to a pod that is over", func(v *view) {
			unclaimed(v.pod, v1alpha1.PodIdle)
			v.pod.Status.Phase, v.unclaimedFor = corev1.PodFailed, grace
		}, decision{phase: v1alpha1.SandboxPending, step: stepUnbind}},
		{"another's pod", func(v *view) {
			v.pod.Annotations[v1alpha1.AnnotationClaim], v.confirmed, v.unclaimedFor = "other", true, grace
		}, decision{phase: v1alpha1.SandboxPending, step: stepUnbind}},
		{"bound anew, the claim under way", func(v *view) { unclaimed(v.pod, v1alpha1.PodIdle); had(v.sandbox, "former") },
			decision{phase: v1alpha1.SandboxPending, recheck: grace}},
		{"bound anew, the pod gone, in grace", func(v *view) { v.pod, v.confirmed = nil, true; had(v.sandbox, "former") },
			decision{phase: v1alpha1.SandboxPending, recheck: grace}},
		{"bound anew, the pod gone", func(v *view) {
			v.pod, v.confirmed, v.unclaimedFor = nil, true, grace
			had(v.sandbox, "former")
		}, decision{phase: v1alpha1.SandboxPending, step: stepUnbind}},
		{"stopped before it served", func(v *view) { setPhase(v.pod, v1alpha1.PodStopping); v.pod.Status.PodIP = "10.0.0.9" },
			decision{phase: v1alpha1.SandboxPending, recheck: grace}},
		{"stopped before it served, after a former claim", func(v *view) {
			setPhase(v.pod, v1alpha1.PodStopping)
			v.pod.Status.PodIP, v.unclaimedFor = "10.0.0.9", grace
			had(v.sandbox, "former")
		}, decision{phase: v1alpha1.SandboxPending, step: stepUnbind}},
		{"stopped after it served", func(v *view) {
			setPhase(v.pod, v1alpha1.PodStopping)
			v.pod.Status.PodIP = "10.0.0.9"
			had(v.sandbox, "c")
		}, decision{phase: v1alpha1.SandboxRunning, step: stepEnd, reason: v1alpha1.EndFailed, message: "its pod pod was stopped"}},
		{"end time to come", func(v *view) { at := metav1.NewTime(now.Add(time.Second)); v.sandbox.Spec.Timeouts.EndAt = &at },
			decision{phase: v1alpha1.SandboxRunning, recheck: time.Second}},
		{"end time", func(v *view) { at := metav1.NewTime(now); v.sandbox.Spec.Timeouts.EndAt = &at },
			decision{phase: v1alpha1.SandboxRunning, step: stepEnd, reason: v1alpha1.EndEndAt, message: "its end time has come"}},
		{"end time to pause, cache without the pod", func(v *view) {
			at := metav1.NewTime(now)
			v.sandbox.Spec.Timeouts.EndAt, v.sandbox.Spec.Timeouts.OnTimeout, v.pod = &at, v1alpha1.TimeoutPause, nil
			v.sandbox.Status.Phase = v1alpha1.SandboxRunning
		}, decision{phase: v1alpha1.SandboxRunning, step: stepConfirm}},
		{"end time to pause, cache with the pod before its claim", func(v *view) {
			at := metav1.NewTime(now)
			v.sandbox.Spec.Timeouts.EndAt, v.sandbox.Spec.Timeouts.OnTimeout = &at, v1alpha1.TimeoutPause
			unclaimed(v.pod, v1alpha1.PodIdle)
			had(v.sandbox, "former")
		}, decision{phase: v1alpha1.SandboxPending, step: stepConfirm}},
		{"end time to pause, the pod gone", func(v *view) {
			at := metav1.NewTime(now)
			v.sandbox.Spec.Timeouts.EndAt, v.sandbox.Spec.Timeouts.OnTimeout = &at, v1alpha1.TimeoutPause
			v.pod, v.confirmed = nil, true
			had(v.sandbox, "c")
		}, decision{phase: v1alpha1.SandboxRunning, step: stepEnd, reason: v1alpha1.EndEndAt, message: "its end time has come"}},
		{"first request, no pod yet", func(v *view) {
			v.sandbox.Spec.FirstRequest, v.sandbox.Spec.Binding, v.pod = true, nil, nil
		}, decision{phase: v1alpha1.SandboxPending, recheck: time.Minute}},
		{"first request, no pod in time", func(v *view) {
			v.sandbox.Spec.FirstRequest, v.sandbox.Spec.Binding, v.pod, v.startup = true, nil, nil, time.Minute
		}, decision{phase: v1alpha1.SandboxPending, step: stepDelete}},
		{"first request, bound, no pod in time by the cache", func(v *view) {
			unclaimed(v.pod, v1alpha1.PodIdle)
			v.sandbox.Spec.FirstRequest, v.startup = true, time.Minute
		}, decision{phase: v1alpha1.SandboxPending, step: stepConfirm}},
		{"first request, bound, claimed after all", func(v *view) {
			v.sandbox.Spec.FirstRequest, v.startup, v.confirmed = true, time.Minute, true
		}, decision{phase: v1alpha1.SandboxRunning}},
		{"first request, bound, no claim in time, in grace", func(v *view) {
			unclaimed(v.pod, v1alpha1.PodIdle)
			v.sandbox.Spec.FirstRequest, v.startup, v.confirmed = true, time.Minute, true
		}, decision{phase: v1alpha1.SandboxPending, recheck: grace}},
		{"first request, bound, no claim in time", func(v *view) {
			unclaimed(v.pod, v1alpha1.PodIdle)
			v.sandbox.Spec.FirstRequest, v.startup, v.confirmed, v.unclaimedFor = true, time.Minute, true, grace
		}, decision{phase: v1alpha1.SandboxPending, step: stepUnbind}},
		{"first request, bound to a pod that is gone", func(v *view) {
			v.pod, v.confirmed, v.unclaimedFor = nil, true, grace
			v.sandbox.Spec.FirstRequest, v.startup = true, time.Minute
		}, decision{phase: v1alpha1.SandboxPending, step: stepUnbind}},
		{"first request, running", func(v *view) { v.sandbox.Spec.FirstRequest, v.startup = true, time.Second },
			decision{phase: v1alpha1.SandboxRunning}},
		{"first request, had a pod", func(v *view) {
			had(v.sandbox, "c")
			v.sandbox.Spec.FirstRequest, v.startup = true, time.Second
			v.sandbox.Spec.Binding, v.pod = nil, nil
		}, decision{phase: v1alpha1.SandboxPending}},
		{"of the REST API, no pod in time", func(v *view) {
			ofAPI(v)
			v.startup = time.Second // shorter than a create may wait
		}, decision{phase: v1alpha1.SandboxPending, step: stepEnd, reason: v1alpha1.EndStartupTimeout,
			message: "it was given up before it had a pod", recheck: time.Hour}},
		{"of the REST API, its create may wait still", func(v *view) {
			ofAPI(v)
			v.startup, v.podlessFor = time.Second, v1alpha1.DefaultStartupTimeout-time.Second
		}, decision{phase: v1alpha1.SandboxPending, recheck: time.Second}},
		{"made by hand, waiting for a request", func(v *view) {
			ofAPI(v)
			v.sandbox.Spec.Timeouts.EndAt, v.startup = nil, time.Second
		}, decision{phase: v1alpha1.SandboxPending}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, pod := bound()
			v := view{sandbox: s, pod: pod, startup: startup, grace: grace, podlessFor: time.Minute}
			tt.change(&v)
			if got := decide(v, now); got != tt.want {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestDecideStop(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*v1alpha1.Sandbox, *corev1.Pod)
		want   stopping
	}{
		{"running", func(*v1alpha1.Sandbox, *corev1.Pod) {}, stopClaimed},
		{"starting", func(_ *v1alpha1.Sandbox, p *corev1.Pod) { setPhase(p, v1alpha1.PodStarting) }, stopClaimed},
		{"running, being deleted", func(_ *v1alpha1.Sandbox, p *corev1.Pod) { deleting(p) }, stopClaimed},
		{"stopped already", func(_ *v1alpha1.Sandbox, p *corev1.Pod) { setPhase(p, v1alpha1.PodStopping) }, stopNothing},
		{"failed", func(_ *v1alpha1.Sandbox, p *corev1.Pod) { setPhase(p, v1alpha1.PodFailed) }, stopNothing},
		{"the claim may be on its way", func(_ *v1alpha1.Sandbox, p *corev1.Pod) { unclaimed(p, v1alpha1.PodIdle) }, stopUnclaimed},
		{"no claim lands on a pod being deleted", func(_ *v1alpha1.Sandbox, p *corev1.Pod) { unclaimed(p, v1alpha1.PodIdle); deleting(p) }, stopNothing},
		{"another's pod", func(_ *v1alpha1.Sandbox, p *corev1.Pod) { p.Annotations[v1alpha1.AnnotationClaim] = "other" }, stopNothing},
		{"no binding", func(s *v1alpha1.Sandbox, _ *corev1.Pod) { s.Spec.Binding = nil }, stopNothing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, pod := bound()
			tt.change(s, pod)
			if got := decideStop(s, pod); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
	s, _ := bound()
	if got := decideStop(s, nil); got != stopNothing {
		t.Errorf("a pod that is gone: %v", got)
	}
}

func TestOwns(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*v1alpha1.Sandbox, *corev1.Pod)
		want   bool
	}{
		{"live", func(*v1alpha1.Sandbox, *corev1.Pod) {}, true},
		{"names another pod", func(s *v1alpha1.Sandbox, _ *corev1.Pod) { s.Spec.Binding.PodUID = "other" }, false},
		{"ended, its pod runs", func(s *v1alpha1.Sandbox, _ *corev1.Pod) {
			s.Status.Phase = v1alpha1.SandboxEnded
			had(s, "c")
		}, false},
		{"ended, its pod stopped", func(s *v1alpha1.Sandbox, p *corev1.Pod) {
			s.Status.Phase = v1alpha1.SandboxEnded
			had(s, "c")
			setPhase(p, v1alpha1.PodStopping)
		}, true},
		{"ended with the address of a former claim", func(s *v1alpha1.Sandbox, p *corev1.Pod) {
			s.Status.Phase = v1alpha1.SandboxEnded
			had(s, "former")
			setPhase(p, v1alpha1.PodStopping)
		}, false},
		{"ended without the pod's address", func(s *v1alpha1.Sandbox, p *corev1.Pod) {
			s.Status.Phase = v1alpha1.SandboxEnded
			setPhase(p, v1alpha1.PodStopping)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, pod := bound()
			tt.change(s, pod)
			if got := owns(s, pod); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
