package gateway

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/sandboxes"
	"github.com/sandlane/sandlane/test/kubetest"
)

// A pool is a template by its name and its aliases, in its own namespace.
func TestTemplates(t *testing.T) {
	w := newWorld(t)
	w.pool("plain", 8000, nil)
	shared := &v1alpha1.SandboxTemplate{}
	shared.Name = kubetest.Name("shared")
	shared.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "main", Ports: []corev1.ContainerPort{{ContainerPort: v1alpha1.SandboxdPort}},
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("512Mi"),
		}},
	}}
	if err := w.c.Create(t.Context(), shared); err != nil {
		t.Fatal(err)
	}
	w.pool("python", 1, func(p *v1alpha1.SandboxPool) {
		p.Annotations = map[string]string{v1alpha1.AnnotationAliases: "code-interpreter-v1, Py ,,plain,python:v2"}
		p.Spec.Template, p.Spec.TemplateRef = nil, &v1alpha1.TemplateRef{Name: shared.Name}
	})
	g := w.gateway()
	x := sandboxes.NewTemplates(g.index, g.api.node)
	for name, want := range map[string]string{
		"base": "base", "python": "python", "py": "python", "code-interpreter-v1": "python",
		"plain":     "plain", // the name comes before another's alias
		"python:v2": "python",
		"":          "", "none": "",
	} {
		if got, ok := x.Template(w.ns, name); ok != (want != "") || got.ID != want || got.Pool != want {
			t.Errorf("%q is %+v, %v; want %q", name, got, ok, want)
		}
	}
	if got, ok := x.Template(kubetest.Namespace(t), "base"); ok {
		t.Errorf("another namespace has %+v", got)
	}
	all := x.Templates(w.ns)
	if len(all) != 2 {
		t.Fatalf("all templates: %+v", all)
	}
	for _, tmpl := range all {
		if tmpl.ID == "python" && (tmpl.CPUCount != 2 || tmpl.MemoryMB != 512 || len(tmpl.Aliases) != 4 || tmpl.MaxLifetime != 24*time.Hour || tmpl.CreatedAt.IsZero()) {
			t.Errorf("python is %+v", tmpl)
		}
	}
}
