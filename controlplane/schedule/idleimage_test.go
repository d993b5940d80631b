package schedule

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// TestIdleImage: a pod that was made with an idle image gets its template's by the claim,
// or the one that the sandbox names, and starts then; also when a follower claims it.
func TestIdleImage(t *testing.T) {
	onRig(t, func(t *testing.T, r *rig) {
		idles := func(name string) {
			r.api.idle(name)
			r.api.change(name, func(pod *corev1.Pod) { pod.Annotations[v1alpha1.AnnotationImage] = "real" })
		}
		for i, named := range []map[string]string{nil, {"main": "b"}} {
			name := fmt.Sprint("p", i)
			idles(name)
			r.Offer(r.api.pod(name))
			pod := gets(t, r.ask(t, fmt.Sprint("a", i), time.Minute, func(q *ClaimRequest) { q.Opts.ContainerImages = named }), name)
			want := named["main"]
			if named == nil {
				want = "real"
			}
			if got := pod.Spec.Containers[0].Image; got != want || v1alpha1.PhaseOf(pod) != v1alpha1.PodStarting {
				t.Errorf("%s: image %q, phase %s; want %q", name, got, v1alpha1.PhaseOf(pod), want)
			}
		}
		idles("p2")
		pod := r.api.pod("p2")
		s := &v1alpha1.Sandbox{Spec: v1alpha1.SandboxSpec{Namespace: "ns", Binding: &v1alpha1.Binding{ClaimID: "c", PodName: "p2", PodUID: string(pod.UID)}}}
		claim, err := ClaimOf(s, pod)
		if err != nil || claim.Phase != v1alpha1.PodStarting || len(claim.Images) != 1 || claim.Images[0].Image != "real" {
			t.Errorf("a follower's claim is %+v, error %v", claim, err)
		}
		pod.Spec.Containers[0].Image = "real"
		if claim, err = ClaimOf(s, pod); err != nil || len(claim.Images) != 0 {
			t.Errorf("of a pod that has it the claim is %+v, error %v", claim, err)
		}
	})
}
