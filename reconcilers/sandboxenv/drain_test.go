package sandboxenv

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A pool that was drained before, has been a member again since and may have pods is not
// deleted by what its status said then. Its generation is the same all the time.
func TestDrainedOfAnEarlierMark(t *testing.T) {
	none := v1alpha1.EnvMember{Name: "m", Spec: v1alpha1.EnvMemberSpec{Replicas: new(int32)}}
	b := newBench(t, template(), env(none))
	b.reconcile()
	var p v1alpha1.SandboxPool
	mark := func(members ...v1alpha1.EnvMember) string {
		t.Helper()
		var e v1alpha1.SandboxEnv
		b.get("e", &e)
		e.Spec.Clusters[0].Members = members
		if err := b.c.Update(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
		b.reconcile()
		p = v1alpha1.SandboxPool{}
		b.get("m", &p)
		return p.Annotations[v1alpha1.AnnotationDraining]
	}
	drained := func(mark string) {
		t.Helper()
		p.Status.Drained, p.Status.ObservedGeneration = mark, p.Generation
		if err := b.c.Status().Update(t.Context(), &p); err != nil {
			t.Fatal(err)
		}
	}
	first := mark()
	drained(first)
	if again := mark(none); again != "" {
		t.Fatalf("a member again, and marked %q", again)
	}
	second := mark()
	if first == "" || second == "" || first == second {
		t.Fatalf("marked %q and %q", first, second)
	}
	b.reconcile()
	b.get("m", &p) // it is still there
	drained(second)
	b.reconcile()
	if err := b.c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "m"}, &p); !apierrors.IsNotFound(err) {
		t.Errorf("the drained pool is still there: %v", err)
	}
}

// What a pool said before its spec changed does not count: it may have made pods since.
func TestDrainedOfAnEarlierSpec(t *testing.T) {
	p := &v1alpha1.SandboxPool{}
	p.Generation, p.Annotations = 2, map[string]string{v1alpha1.AnnotationDraining: "mark"}
	p.Status.Drained, p.Status.ObservedGeneration = "mark", 1
	if drained(p) {
		t.Error("drained")
	}
	if p.Status.ObservedGeneration = 2; !drained(p) {
		t.Error("not drained")
	}
}
