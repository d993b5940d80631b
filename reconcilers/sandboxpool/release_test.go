package sandboxpool

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/reconcilers/podstate"
)

// TestReleaseSandboxPod has a claim released by a caller whose view is old.
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
		if _, err := ReleaseSandboxPod(t.Context(), c, wrong.pod, wrong.o); !errors.Is(err, writes.ErrStale) {
			t.Errorf("another claim, or another phase: %v", err)
		}
	}
	code := int32(7)
	out, err := ReleaseSandboxPod(t.Context(), c, pod, ReleaseSandboxPodOptions{StopReason: v1alpha1.StopFailed, FailureReason: "Crashed", ExitCode: &code})
	if err != nil {
		t.Fatal(err)
	}
	if r := podstate.WrittenRecord(out); v1alpha1.PhaseOf(out) != v1alpha1.PodStopping || r == nil || r.StopReason != v1alpha1.StopFailed || *r.ExitCode != 7 || r.PodName != pod.Name {
		t.Errorf("phase %s, record %+v", v1alpha1.PhaseOf(out), r)
	}
}
