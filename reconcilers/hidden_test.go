package reconcilers_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// A pod whose pool's label was taken off goes with its sandbox, though no watch shows it.
func TestAPodWithoutItsLabelGoesWithItsSandbox(t *testing.T) {
	w := newWorld(t)
	w.pool("p", 1, 0)
	w.await("p", v1alpha1.PodIdle, 1)
	s, pod := w.running("p")
	hide := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, v1alpha1.LabelPool))
	if err := w.c.Patch(t.Context(), pod, hide); err != nil {
		t.Fatal(err)
	}
	if err := writes.EndSandbox(t.Context(), w.c, s.Name, v1alpha1.EndReleased, ""); err != nil {
		t.Fatal(err)
	}
	w.awaitSandbox(s, v1alpha1.SandboxEnded)
	w.awaitGone(pod)
}
