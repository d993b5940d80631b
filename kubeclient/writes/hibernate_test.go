package writes_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/kubetest"
)

// A pod is given up by the pause that has kept its files: after other changes of the spec too,
// and not after a resume, though the sandbox is paused again with the same claim.
func TestGiveUpPodIsOfOnePause(t *testing.T) {
	c, s := kubetest.Client(t), newSandbox(t)
	patch := func(p writes.Patch) {
		t.Helper()
		if err := c.Patch(t.Context(), s, p.Build()); err != nil {
			t.Fatal(err)
		}
	}
	patch(writes.For(s.UID).Set("/spec/release", v1alpha1.Release{Token: "idle", ClaimID: s.Spec.Binding.ClaimID}))
	patch(writes.PauseAs(s, v1alpha1.PauseHibernate))
	if s.Spec.Release != nil {
		t.Error("the pause has not called the idle release off")
	}
	first := s.DeepCopy()
	patch(writes.Resume(s, nil))
	patch(writes.PauseAs(s, v1alpha1.PauseHibernate))
	second := s.DeepCopy()
	patch(writes.For(s.UID).Set("/spec/metadata", map[string]string{"a": "b"}))
	if s.Spec.PauseOrder != 3 || s.Generation != second.Generation+1 {
		t.Fatalf("%+v", s.Spec)
	}
	if err := c.Patch(t.Context(), s.DeepCopy(), writes.GiveUpPod(first, "cp").Build()); writes.Judge(err) != writes.TestFailed {
		t.Errorf("of the first pause: %v", err)
	}
	patch(writes.GiveUpPod(second, "cp"))
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil || !v1alpha1.Hibernated(s) || s.Spec.PauseOrder != 3 {
		t.Errorf("%v, %+v", err, s.Spec)
	}
}
