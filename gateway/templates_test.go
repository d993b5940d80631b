package gateway

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/restapi/backend"
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
	x := backend.NewTemplates(g.index, g.api.node)
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

// An env is a template by its name, before a pool, and its members are not beside it; one
// can be named all the same. A create by env comes from a member.
func TestTemplatesOfEnvs(t *testing.T) {
	w := newWorld(t)
	shared := &v1alpha1.SandboxTemplate{}
	shared.Name = kubetest.Name("shared")
	shared.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "x", Ports: []corev1.ContainerPort{{ContainerPort: v1alpha1.SandboxdPort}}}}
	e := &v1alpha1.SandboxEnv{}
	e.Namespace, e.Name, e.Spec.TemplateRef.Name = w.ns, "python", shared.Name
	e.Spec.Clusters = []v1alpha1.EnvCluster{{ClusterID: "local", Members: []v1alpha1.EnvMember{{Name: "python"}, {Name: "python-b"}, {Name: "base"}}}}
	for _, o := range []client.Object{shared, e} {
		if err := w.c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"python", "python-b"} {
		w.pool(name, v1alpha1.SandboxdPort, func(p *v1alpha1.SandboxPool) {
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(e, v1alpha1.GroupVersion.WithKind("SandboxEnv"))}
		})
	}
	g := w.gateway()
	x := backend.NewTemplates(g.index, g.api.node)
	if env, ok := x.Template(w.ns, "python"); !ok || !env.Pausable {
		t.Errorf("sandboxes of the env cannot be paused: %+v, %v", env, ok)
	}
	for name, want := range map[string][2]string{"python": {"python", ""}, "python-b": {"", "python-b"}, "base": {"", "base"}} {
		if got, ok := x.Template(w.ns, name); !ok || got.SandboxEnv != want[0] || got.Pool != want[1] || got.ID != name {
			t.Errorf("%q is %+v, %v", name, got, ok)
		}
	}
	for _, name := range []string{"python", "python-b", "base"} {
		if got, ok := x.OfPool(w.ns, name); !ok || got.SandboxEnv != "" || got.Pool != name || got.ID != name || !got.Pausable {
			t.Errorf("pool %q is %+v, %v", name, got, ok)
		}
	}
	if got, ok := x.OfPool(w.ns, "none"); ok {
		t.Errorf("a pool that is not there is %+v", got)
	}
	var listed []string
	for _, tmpl := range x.Templates(w.ns) {
		listed = append(listed, tmpl.ID)
	}
	if !slices.Equal(listed, []string{"python", "base"}) { // base is not the env's own
		t.Errorf("templates %v", listed)
	}

	d := w.sandboxd()
	w.pod("python-b", d.addr, nil)
	n := w.new(newID())
	n.SandboxEnv, n.Pool = "python", ""
	if _, err := g.create(t, n); err != nil {
		t.Fatal(err)
	}
	if s := w.sandbox(n.ID); s.Spec.Env != "python" || s.Spec.Pool != "python-b" {
		t.Errorf("made from env %q, pool %q", s.Spec.Env, s.Spec.Pool)
	}
	n = w.new(newID())
	n.SandboxEnv, n.Pool = "none", ""
	_, err := g.create(t, n)
	wantError(t, "Create", err, restapi.ErrInvalid)
}
