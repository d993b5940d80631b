package activation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

func TestStandingOf(t *testing.T) {
	sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	sandbox.Spec.Namespace = "ns"
	sandbox.Spec.Binding = &v1alpha1.Binding{ClaimID: "c", PodName: "p", PodUID: "u"}
	pod := func(phase v1alpha1.PodPhase, claim string) *corev1.Pod {
		p := &corev1.Pod{}
		p.Namespace, p.Name, p.UID = "ns", "p", "u"
		p.Labels = map[string]string{v1alpha1.LabelPhase: string(phase)}
		p.Annotations = map[string]string{v1alpha1.AnnotationAddress: "10.0.0.1"}
		p.Status.PodIP = "10.0.0.1"
		if claim != "" {
			p.Labels[v1alpha1.LabelSandboxID] = "s"
			p.Annotations[v1alpha1.AnnotationClaim] = claim
		}
		return p
	}
	with := func(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod { change(p); return p }
	over := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	deleting := func(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now }
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		want claimState
	}{
		{"no pod", nil, claimLost},
		{"another pod of that name", with(pod(v1alpha1.PodIdle, ""), func(p *corev1.Pod) { p.UID = "v" }), claimLost},
		{"idle", pod(v1alpha1.PodIdle, ""), claimPending},
		{"idle, being deleted", with(pod(v1alpha1.PodIdle, ""), deleting), claimLost},
		{"warming again", pod(v1alpha1.PodWarming, ""), claimLost},
		{"stopping, never claimed", pod(v1alpha1.PodStopping, ""), claimLost},
		{"another claim", pod(v1alpha1.PodRunning, "d"), claimLost},
		{"starting", pod(v1alpha1.PodStarting, "c"), claimStarts},
		{"running", pod(v1alpha1.PodRunning, "c"), claimRuns},
		{"running on an address that is not fenced", with(pod(v1alpha1.PodRunning, "c"),
			func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.2" }), claimStarts},
		{"running, being deleted", with(pod(v1alpha1.PodRunning, "c"), deleting), claimOver},
		{"idle, over", with(pod(v1alpha1.PodIdle, ""), over), claimLost},
		{"starting, over", with(pod(v1alpha1.PodStarting, "c"), over), claimOver},
		{"running, over", with(pod(v1alpha1.PodRunning, "c"), over), claimOver},
		{"stopping", pod(v1alpha1.PodStopping, "c"), claimOver},
		{"failed", pod(v1alpha1.PodFailed, "c"), claimOver},
	} {
		if got := claimStateOf(sandbox, tc.pod); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}
