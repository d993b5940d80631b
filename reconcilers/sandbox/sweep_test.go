package sandbox

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A claim without a sandbox is ended by the second look in a row that finds it:
// the sandbox of a fresh ID may be on its way.
func TestStrayIsSweptAtTheSecondLook(t *testing.T) {
	s, pod := bound()
	pod.Labels[v1alpha1.LabelPool] = "p"
	g := newRig(t, pod)
	w := &sweeper{r: g.Reconciler}
	swept := func() bool {
		t.Helper()
		if err := w.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		stopped := v1alpha1.PhaseOf(pod) == v1alpha1.PodStopping
		if stopped != (len(g.asked) > 0) {
			t.Errorf("the pod is %s, and fences were asked for %v", v1alpha1.PhaseOf(pod), g.asked)
		}
		return stopped
	}
	if swept() {
		t.Fatal("ended at first sight")
	}
	if err := g.Client.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if swept() {
		t.Fatal("ended though its sandbox has come")
	}
	if err := g.Client.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if swept() {
		t.Fatal("ended at first sight, because it had been without a sandbox before it had one")
	}
	if !swept() || g.asked[0] != "10.0.0.1" {
		t.Errorf("two looks found no sandbox: the pod is %s, and fences were asked for %v", v1alpha1.PhaseOf(pod), g.asked)
	}
}
