package sandbox

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A sandbox with images of its own is being updated while its pod starts, and is once it
// runs; that is no write more than its phase is.
func TestInplaceUpdated(t *testing.T) {
	for _, images := range []map[string]string{nil, {"main": "other"}} {
		s, pod := bound()
		s.UID, s.Generation, s.Finalizers, s.Spec.Images = "s-uid", 1, []string{v1alpha1.FinalizerSandbox}, images
		setPhase(pod, v1alpha1.PodStarting)
		g := newRig(t, s, pod)
		want := func(what string, status metav1.ConditionStatus, reason string) {
			t.Helper()
			g.look(t)
			c := meta.FindStatusCondition(g.sandbox(t).Status.Conditions, v1alpha1.SandboxConditionInplaceUpdated)
			if images == nil {
				if c != nil {
					t.Errorf("%s: %+v of a sandbox without images", what, c)
				}
				return
			}
			if c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != 1 {
				t.Errorf("%s: %+v", what, c)
			}
		}
		want("starting", metav1.ConditionFalse, v1alpha1.ReasonInplaceUpdating)
		if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		setPhase(pod, v1alpha1.PodRunning)
		if err := g.Client.Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		want("running", metav1.ConditionTrue, v1alpha1.ReasonInplaceUpdated)
		want("still running", metav1.ConditionTrue, v1alpha1.ReasonInplaceUpdated)
		if !slices.Equal(g.written, []v1alpha1.SandboxPhase{v1alpha1.SandboxStarting, v1alpha1.SandboxRunning}) {
			t.Errorf("statuses written: %v", g.written)
		}
	}
}

// Ready says why a sandbox whose pod could not start it has ended; of one that ran, or
// never had a pod, it does not say that.
func TestStartContainerFailed(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*v1alpha1.Sandbox)
		failed bool
	}{
		"its pod failed":     {func(*v1alpha1.Sandbox) {}, true},
		"it took too long":   {func(s *v1alpha1.Sandbox) { s.Spec.End.Reason = v1alpha1.EndStartupTimeout }, true},
		"it ran":             {func(s *v1alpha1.Sandbox) { at := metav1.NewTime(now); s.Status.StartedAt = &at }, false},
		"it never had a pod": {func(s *v1alpha1.Sandbox) { s.Spec.Binding = nil }, false},
		"it was released":    {func(s *v1alpha1.Sandbox) { s.Spec.End.Reason = v1alpha1.EndReleased }, false},
	} {
		s, pod := endingOne()
		s.Spec.End.Reason, s.Spec.End.Message = v1alpha1.EndFailed, "its image cannot be pulled"
		c.change(s)
		g := newRig(t, s, pod)
		g.step(t)
		ready := meta.FindStatusCondition(g.sandbox(t).Status.Conditions, v1alpha1.SandboxConditionReady)
		if ready == nil || ready.Status != metav1.ConditionFalse || (ready.Reason == v1alpha1.ReasonStartContainerFailed) != c.failed ||
			(ready.Message == "its image cannot be pulled") != c.failed {
			t.Errorf("%s: %+v", what, ready)
		}
	}
}
