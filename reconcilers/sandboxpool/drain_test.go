package sandboxpool

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// What is being restored when its pool goes hibernates on: its files are all there is of it.
// A view that is behind the restore takes nothing back.
func TestARestoringSandboxOutlivesItsPool(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*v1alpha1.SandboxSpec) // after the view
		back   bool
	}{
		"restoring":    {nil, true},
		"restored":     {func(s *v1alpha1.SandboxSpec) { s.Restore = nil }, false},
		"it has ended": {func(s *v1alpha1.SandboxSpec) { s.End = &v1alpha1.End{Reason: v1alpha1.EndReleased} }, false},
	} {
		l := newLagging(t, 0)
		v := claimedPod(v1alpha1.PodRunning, poolDeleted, restoring)
		at := metav1.NewTime(now)
		v.sandbox.UID, v.sandbox.Generation, v.sandbox.Spec.Timeouts.EndAt = "s-uid", 7, &at
		made := v.sandbox.DeepCopy()
		if c.change != nil {
			c.change(&made.Spec)
			made.Generation++
		}
		if err := l.real.Create(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		if _, err := l.apply(t.Context(), nil, nil, v, decide(v, now)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		got := &v1alpha1.Sandbox{}
		if err := l.real.Get(t.Context(), client.ObjectKey{Name: "s"}, got); err != nil {
			t.Fatal(err)
		}
		if v1alpha1.Hibernated(got) != c.back || c.back && (got.Spec.End != nil || got.Spec.Timeouts.EndAt != nil) || !c.back && got.Spec.Binding == nil {
			t.Errorf("%s: the spec is %+v", what, got.Spec)
		}
		// Its pod is an orphan then, which is neither deleted nor recycled before its claim
		// is fenced.
		if v.sandbox = got; c.back {
			if d := decide(v, now); d.step != stepNone {
				t.Errorf("%s: the pod's next step is %+v", what, d)
			}
		}
	}
}
