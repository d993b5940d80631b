package claims

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

func TestLookups(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	// put makes a sandbox and its pod of one name; the sandbox names bound as its claim.
	put := func(name, team string, phase v1alpha1.PodPhase, bound string) {
		t.Helper()
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "n", Name: name, UID: types.UID("u-" + name),
				Labels:      map[string]string{v1alpha1.LabelPool: "p", v1alpha1.LabelSandboxID: name, v1alpha1.LabelPhase: string(phase)},
				Annotations: map[string]string{v1alpha1.AnnotationClaim: "c", v1alpha1.AnnotationClaimedAt: "2026-01-02T03:04:05Z", v1alpha1.AnnotationAddress: "10.0.0.1"},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
			}}}},
			Status: corev1.PodStatus{PodIP: "10.0.0.1"},
		}
		s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.SandboxSpec{
			Namespace: "n", Team: team, Metadata: map[string]string{"user": "u-" + name},
			Binding: &v1alpha1.Binding{ClaimID: bound, PodName: name, PodUID: string(pod.UID)},
		}}
		if err := errors.Join(c.Create(t.Context(), pod), c.Create(t.Context(), s)); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "red", v1alpha1.PodRunning, "c")
	put("b", "blue", v1alpha1.PodStarting, "c")
	put("over", "red", v1alpha1.PodStopping, "c")
	put("stray", "red", v1alpha1.PodRunning, "another")
	put("evicted", "red", v1alpha1.PodRunning, "c")
	evicted := &corev1.Pod{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "evicted"}, evicted); err != nil {
		t.Fatal(err)
	}
	evicted.Status.Phase = corev1.PodFailed
	if err := c.Status().Update(t.Context(), evicted); err != nil {
		t.Fatal(err)
	}
	if b, ok := SandboxBaseFromPod(evicted); !ok || b.Address != "" {
		t.Errorf("a pod that is over has the address %s", b.Address)
	}
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
	if got := names(ListClaimedPods(t.Context(), c, "n")); got != "a b stray " {
		t.Errorf("claimed: %s", got)
	}
	for want, filter := range map[string][2]string{"a b ": {"", ""}, "a ": {"red", ""}, "b ": {"", "u-b"}, "": {"red", "u-b"}} {
		if got := names(ListClaimedPodsWithFilter(t.Context(), c, "n", filter[0], filter[1])); got != want {
			t.Errorf("%v: %q, want %q", filter, got, want)
		}
	}
	pod, err := FindClaimedPodBySandboxID(t.Context(), c, "n", "a")
	if err != nil {
		t.Fatal(err)
	}
	if b, ok := SandboxBaseFromPod(pod); !ok || b.ID != "a" || b.ClaimID != "c" || b.Address != "10.0.0.1" || b.ClaimedAt.IsZero() || b.Phase != v1alpha1.PodRunning {
		t.Errorf("%+v", b)
	}
	for _, id := range []string{"stray", "nobody", "evicted", "over"} {
		if _, err := FindClaimedPodBySandboxID(t.Context(), c, "", id); !errors.Is(err, ErrSandboxNotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := FindClaimedPodBySandboxID(t.Context(), c, "another", "a"); !errors.Is(err, ErrSandboxNotFound) {
		t.Errorf("in another namespace: %v", err)
	}
	s := &v1alpha1.Sandbox{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "a"}, s); err != nil {
		t.Fatal(err)
	}
	if b, ok := SandboxBaseOf(pod, s); !ok || b.Team != "red" || b.User != "u-a" || b.Metadata["user"] != "u-a" || b.Images["main"] != "image" ||
		b.CPU.String() != "500m" || b.Memory.String() != "1Gi" {
		t.Errorf("%+v", b)
	}
	s.Spec.End = &v1alpha1.End{Reason: v1alpha1.EndReleased}
	if err := c.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, err := FindClaimedPodBySandboxID(t.Context(), c, "n", "a"); !errors.Is(err, ErrSandboxNotFound) {
		t.Errorf("an ended one: %v", err)
	}
	if _, ok := SandboxBaseOf(pod, s); ok {
		t.Error("an ended sandbox has a pod")
	}
	s.Spec.End, s.Spec.Binding.ClaimID = nil, "another"
	if _, ok := SandboxBaseOf(pod, s); ok {
		t.Error("a pod is taken for that of a sandbox with another claim")
	}
	delete(pod.Annotations, v1alpha1.AnnotationClaim)
	if _, ok := SandboxBaseFromPod(pod); ok {
		t.Error("a pod without a claim has a sandbox")
	}
}
