package gateway

import (
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/restapi/backend"
	"github.com/sandlane/sandlane/test/kubetest"
)

// A sandbox of an env ends for being idle where the pool of its pod asks for that, whatever
// the other members do.
func TestIdleTimeoutsOfMembers(t *testing.T) {
	w := newWorld(t)
	e := &v1alpha1.SandboxEnv{}
	e.Namespace, e.Name, e.Spec.TemplateRef.Name = w.ns, "env", "none"
	e.Spec.Clusters = []v1alpha1.EnvCluster{{ClusterID: "local", Members: []v1alpha1.EnvMember{{Name: "ends"}, {Name: "stays"}}}}
	if err := w.c.Create(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ends", "stays"} {
		w.pool(name, v1alpha1.SandboxdPort, func(p *v1alpha1.SandboxPool) {
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(e, v1alpha1.GroupVersion.WithKind("SandboxEnv"))}
			if name == "ends" {
				p.Spec.IdleTimeout = &metav1.Duration{Duration: time.Minute}
			}
		})
	}
	g := w.gateway()
	for _, pool := range []string{"ends", "stays"} {
		w.pod(pool, w.sandboxd().addr, nil)
		n := w.new(newID())
		n.SandboxEnv, n.Pool = "env", ""
		if _, err := g.create(t, n); err != nil {
			t.Fatal(err)
		}
		spec := w.sandbox(n.ID).Spec
		if spec.Pool != pool || (spec.Timeouts.Idle == nil) != (pool == "ends") {
			t.Errorf("on a pod of %s, want %s: idle timeout %v", spec.Pool, pool, spec.Timeouts.Idle)
		}
	}
}

// An env that was made for a pool is a template by the pool's aliases too, and the pool's
// sandboxes of before are its.
func TestTemplateOfAnAdoptedPool(t *testing.T) {
	w := newWorld(t)
	w.pool("py", v1alpha1.SandboxdPort, func(p *v1alpha1.SandboxPool) {
		p.Annotations = map[string]string{v1alpha1.AnnotationAliases: "python,snake"}
	})
	p := &v1alpha1.SandboxPool{}
	if err := w.c.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "py"}, p); err != nil {
		t.Fatal(err)
	}
	g := w.gateway()
	x := backend.NewTemplates(g.index, g.api.node)
	if got, ok := x.Template(w.ns, "Snake"); !ok || got.Pool != "py" || got.SandboxEnv != "" || got.Adopted != "" {
		t.Errorf("before it is adopted: %+v, %v", got, ok)
	}
	e := &v1alpha1.SandboxEnv{}
	e.Namespace, e.Name, e.Spec.TemplateRef.Name = w.ns, "py", "none"
	e.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(p, v1alpha1.GroupVersion.WithKind("SandboxPool"))}
	e.Spec.Clusters = []v1alpha1.EnvCluster{{ClusterID: "local", Members: []v1alpha1.EnvMember{{Name: "py"}}}}
	if err := w.c.Create(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the index to show the env", func() error {
		if _, ok := g.index.Env(w.ns, "py"); !ok {
			return errors.New("not there")
		}
		return nil
	})
	for _, name := range []string{"py", "Snake", "python"} {
		if got, ok := x.Template(w.ns, name); !ok || got.ID != "py" || got.SandboxEnv != "py" || got.Adopted != "py" || !slices.Equal(got.Aliases, []string{"python", "snake"}) {
			t.Errorf("%s is %+v, %v", name, got, ok)
		}
	}
	listed := 0
	for _, tmpl := range x.Templates(w.ns) {
		if tmpl.ID == "py" {
			listed++
			if tmpl.SandboxEnv != "py" || len(tmpl.Aliases) != 2 {
				t.Errorf("listed as %+v", tmpl)
			}
		}
	}
	if listed != 1 {
		t.Errorf("listed %d times", listed)
	}
}
