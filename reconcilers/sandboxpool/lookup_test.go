package sandboxpool

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

func TestLookups(t *testing.T) {
	l := newLagging(t, 0)
	put := func(name, team string, phase v1alpha1.PodPhase, change ...func(*view)) {
		t.Helper()
		v := claimedPod(phase)
		v.pod.Name, v.pod.Labels[v1alpha1.LabelPool], v.pod.Labels[v1alpha1.LabelSandboxID] = name, "p", name
		v.sandbox.Name, v.sandbox.Spec.Binding.PodName, v.sandbox.Spec.Team = name, name, team
		v.sandbox.Spec.Metadata = map[string]string{"user": "u-" + name}
		for _, f := range change {
			f(&v)
		}
		for _, err := range []error{l.real.Create(t.Context(), v.pod), l.real.Create(t.Context(), v.sandbox)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	put("a", "red", v1alpha1.PodRunning)
	put("b", "blue", v1alpha1.PodStarting)
	put("over", "red", v1alpha1.PodStopping)
	put("stray", "red", v1alpha1.PodRunning, func(v *view) { v.sandbox.Spec.Binding.ClaimID = "another" })
	names := func(pods []corev1.Pod, err error) (out string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for i := range pods {
			out += pods[i].Name + " "
		}
		return out
	}
	if got := names(ListClaimedPods(t.Context(), l.real, "n")); got != "a b stray " {
		t.Errorf("claimed: %s", got)
	}
	for want, filter := range map[string][2]string{"a b ": {"", ""}, "a ": {"red", ""}, "b ": {"", "u-b"}, "": {"red", "u-b"}} {
		if got := names(ListClaimedPodsWithFilter(t.Context(), l.real, "n", filter[0], filter[1])); got != want {
			t.Errorf("%v: %q, want %q", filter, got, want)
		}
	}
	pod, err := FindClaimedPodBySandboxID(t.Context(), l.real, "a")
	if err != nil {
		t.Fatal(err)
	}
	if b, ok := SandboxBaseFromPod(pod); !ok || b.ID != "a" || b.ClaimID != "c" || b.Address != "10.0.0.1" || b.ClaimedAt.IsZero() || b.Phase != v1alpha1.PodRunning {
		t.Errorf("%+v", b)
	}
	for _, id := range []string{"stray", "nobody"} {
		if _, err := FindClaimedPodBySandboxID(t.Context(), l.real, id); !errors.Is(err, ErrSandboxNotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, ok := SandboxBaseFromPod(newTestPod(v1alpha1.PodIdle).pod); ok {
		t.Error("an idle pod backs a sandbox")
	}
	pool := l.pool()
	pool.Spec.Template.IdleImage, pool.Spec.PodCreationImagePolicy = "pause", v1alpha1.ImagePolicyIdle
	if images, err := IdleContainerImages(pool, nil); err != nil || images["main"] != "pause" {
		t.Errorf("%v, %v", images, err)
	}
}
