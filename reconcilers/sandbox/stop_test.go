package sandbox

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A pod that has got another claim since it was read is not stopped.
func TestStopTestsTheClaim(t *testing.T) {
	s, pod := endingOne()
	g := newRig(t, s, pod)
	live := pod.DeepCopy()
	if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), live); err != nil {
		t.Fatal(err)
	}
	judged := live.DeepCopy()
	live.Annotations[v1alpha1.AnnotationClaim] = "another"
	if err := g.Client.Update(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	if _, err := g.stop(t.Context(), s, record{address: s.Status.Address}, judged); err == nil {
		t.Error("no error")
	}
	if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), live); err != nil {
		t.Fatal(err)
	}
	if p := v1alpha1.PhaseOf(live); p == v1alpha1.PodStopping {
		t.Error("stopped under another's claim")
	}
}
