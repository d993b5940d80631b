package reconcilers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// byReference makes a pool use a SandboxTemplate.
func (w *world) byReference(p *v1alpha1.SandboxPool) {
	p.Spec.Template, p.Spec.TemplateRef = nil, &v1alpha1.TemplateRef{Name: w.template()}
}

// TestAdoptedPool: a pool gets an env that it owns and that mirrors it, and is itself
// changed in nothing but one annotation; a pool with a template of its own gets none.
func TestAdoptedPool(t *testing.T) {
	w := newWorld(t, func(w *world) { w.options.AdoptPools = true })
	w.pool("own-template", 1, 0)
	p := w.pool("p", 2, 5, w.byReference)
	w.awaitMember("p", "local", "p", v1alpha1.MemberActive)
	e := w.getEnv("p")
	m := e.Spec.Clusters[0].Members[0]
	if !metav1.IsControlledBy(e, p) || e.Spec.TemplateRef != *p.Spec.TemplateRef || *m.Spec.Replicas != 2 || m.Spec.MaxPods != 5 || e.Spec.Autoscaling != nil {
		t.Errorf("env %+v", e)
	}
	now := w.awaitPool("p", "noted", func(p *v1alpha1.SandboxPool) bool {
		return p.Annotations[v1alpha1.AnnotationAdopted] == string(e.UID)
	})
	if now.Generation != p.Generation || len(now.OwnerReferences) > 0 || len(now.Labels) > 0 || len(now.Annotations) != 1 {
		t.Errorf("the adopted pool is changed: %+v", now)
	}

	// The pool stays the truth.
	base := now.DeepCopy()
	now.Spec.Replicas = 1
	if err := w.c.Patch(t.Context(), now, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
	w.awaitReplicas("p", 1)
	w.changeEnv("p", func(e *v1alpha1.SandboxEnv) { *e.Spec.Clusters[0].Members[0].Spec.Replicas = 9 })
	w.awaitReplicas("p", 1)

	// An env that is deleted takes nothing along, and is not made again.
	if err := w.c.Delete(t.Context(), w.getEnv("p")); err != nil {
		t.Fatal(err)
	}
	never(t, 2*time.Second, "the env was made again, or the pool went", func() bool {
		var p v1alpha1.SandboxPool
		key := client.ObjectKey{Namespace: w.ns, Name: "p"}
		return w.c.Get(t.Context(), key, &p) != nil || p.DeletionTimestamp != nil || !apierrors.IsNotFound(w.c.Get(t.Context(), key, &v1alpha1.SandboxEnv{}))
	})
	if err := w.c.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "own-template"}, &v1alpha1.SandboxEnv{}); !apierrors.IsNotFound(err) {
		t.Errorf("a pool with a template of its own has an env: %v", err)
	}
}

// TestAdoptionGoesOn: a controller that dies after it has made the env, and before the
// pool says so, is followed by one that goes on. The env does nothing to the pool meanwhile.
func TestAdoptionGoesOn(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.options.AdoptPools = true
		w.faults = &interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, ok := o.(*v1alpha1.SandboxPool); ok {
				<-ctx.Done()
				return errors.New("killed")
			}
			return c.Patch(ctx, o, p, opts...)
		}}
	})
	p := w.pool("p", 1, 0, w.byReference)
	w.awaitMember("p", "local", "p", v1alpha1.MemberInconsistent)
	first := w.getEnv("p").UID
	w.stop()
	w.faults = nil
	w.start()
	w.awaitMember("p", "local", "p", v1alpha1.MemberActive)
	if e := w.getEnv("p"); e.UID != first {
		t.Errorf("the env was made again: %s, was %s", e.UID, first)
	}
	w.awaitPool("p", "noted and unchanged", func(now *v1alpha1.SandboxPool) bool {
		return now.Annotations[v1alpha1.AnnotationAdopted] == string(first) && now.Generation == p.Generation
	})
}

// TestEnvOfThatNameIsAnothers: a pool is not adopted into an env that it does not own.
func TestEnvOfThatNameIsAnothers(t *testing.T) {
	w := newWorld(t, func(w *world) { w.options.AdoptPools = true })
	w.env("p", member("other", 0))
	w.awaitMember("p", "local", "other", v1alpha1.MemberActive)
	w.pool("p", 1, 0, w.byReference)
	w.await("p", v1alpha1.PodIdle, 1)
	w.pool("q", 0, 0, w.byReference) // looked at after p
	w.awaitMember("q", "local", "q", v1alpha1.MemberActive)
	pool := w.awaitPool("p", "there", func(*v1alpha1.SandboxPool) bool { return true })
	if e := w.getEnv("p"); len(e.Spec.Clusters[0].Members) != 1 || pool.Annotations[v1alpha1.AnnotationAdopted] != "" {
		t.Errorf("adopted into an env of somebody else: %+v, %v", e.Spec.Clusters, pool.Annotations)
	}
}
