package backend

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Limits count if all containers have them; else the node's size does.
func TestSize(t *testing.T) {
	n := &NodeSize{}
	n.last.Store(&size{8, 16384, 100})
	with := func(limits ...corev1.ResourceList) *v1alpha1.SandboxTemplateSpec {
		s := &v1alpha1.SandboxTemplateSpec{}
		for _, l := range limits {
			s.Template.Spec.Containers = append(s.Template.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Limits: l}})
		}
		return s
	}
	cpu := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	for name, tc := range map[string]struct {
		template *v1alpha1.SandboxTemplateSpec
		want     size
	}{
		"no template":  {nil, size{8, 16384, 100}},
		"no limits":    {with(nil), size{8, 16384, 100}},
		"half a CPU":   {with(cpu), size{1, 16384, 100}},
		"two times it": {with(cpu, cpu), size{1, 16384, 100}},
		"one has none": {with(cpu, nil), size{8, 16384, 100}},
	} {
		if got := n.of(tc.template); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
