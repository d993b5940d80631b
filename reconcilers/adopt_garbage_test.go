package reconcilers_test

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// TestAdoptionUnderTheGarbageCollector: an env that was made for a pool takes nothing
// along, however it is deleted, and goes with the pool; the pools that an env made go
// with the env.
func TestAdoptionUnderTheGarbageCollector(t *testing.T) {
	w := newWorldAlone(t, func(w *world) { w.options.AdoptPools = true })
	kubetest.CollectGarbage(t)
	for _, policy := range []client.PropagationPolicy{client.PropagationPolicy(metav1.DeletePropagationForeground), client.PropagationPolicy(metav1.DeletePropagationBackground)} {
		w.envOfAPoolGoes(policy)
		w.poolOfAnEnvGoes(policy)
		w.envGoesWithItsPools(policy)
	}
}

// gone waits until the garbage collector, or the object's own reconciler, has let it go.
func (w *world) gone(o client.Object) {
	w.t.Helper()
	kubetest.Eventually(w.t, o.GetName()+" to be gone", func() error {
		err := w.c.Get(w.t.Context(), client.ObjectKeyFromObject(o), o)
		if err == nil {
			return fmt.Errorf("it is there, finalizers %v", o.GetFinalizers())
		}
		return client.IgnoreNotFound(err)
	})
}

func (w *world) delete(o client.Object, policy client.PropagationPolicy) {
	w.t.Helper()
	if err := w.c.Delete(w.t.Context(), o, policy); err != nil {
		w.t.Fatal(err)
	}
}

// adopted makes a pool of idle pods and waits for its env.
func (w *world) adopted(replicas int32) (*v1alpha1.SandboxPool, *v1alpha1.SandboxEnv) {
	w.t.Helper()
	p := w.pool(kubetest.Name("p"), replicas, 0, w.byReference)
	w.awaitMember(p.Name, "local", p.Name, v1alpha1.MemberActive)
	w.await(p.Name, v1alpha1.PodIdle, int(replicas))
	return p, w.getEnv(p.Name)
}

func (w *world) envOfAPoolGoes(policy client.PropagationPolicy) {
	w.t.Helper()
	p, e := w.adopted(2)
	s, _ := w.running(p.Name)
	// What the env owns is collected, so its end has been seen.
	mark := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: kubetest.Name("mark")}}
	mark.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(e, v1alpha1.GroupVersion.WithKind("SandboxEnv"))}
	mark.Spec.TemplateRef = e.Spec.TemplateRef
	if err := w.c.Create(w.t.Context(), mark); err != nil {
		w.t.Fatal(err)
	}
	w.delete(e, policy)
	w.gone(mark)
	w.gone(e)
	never(w.t, 2*time.Second, "the pool or its sandbox went, or the env came again", func() bool {
		var now v1alpha1.SandboxPool
		err := w.c.Get(w.t.Context(), client.ObjectKeyFromObject(p), &now)
		again := w.c.Get(w.t.Context(), client.ObjectKeyFromObject(e), &v1alpha1.SandboxEnv{})
		return err != nil || now.UID != p.UID || now.DeletionTimestamp != nil || len(w.pods(p.Name, v1alpha1.PodRunning)) != 1 ||
			w.sandbox(s.Name).Spec.End != nil || !apierrors.IsNotFound(again)
	})
}

func (w *world) poolOfAnEnvGoes(policy client.PropagationPolicy) {
	w.t.Helper()
	p, e := w.adopted(1)
	w.delete(p, policy)
	w.gone(e)
	w.gone(p)
}

func (w *world) envGoesWithItsPools(policy client.PropagationPolicy) {
	w.t.Helper()
	name := kubetest.Name("e")
	pool := name + "-a"
	w.env(name, member(pool, 1))
	w.awaitMember(name, "local", pool, v1alpha1.MemberActive)
	w.await(pool, v1alpha1.PodIdle, 1)
	e, p := w.getEnv(name), w.awaitPool(pool, "there", func(*v1alpha1.SandboxPool) bool { return true })
	w.delete(e, policy)
	w.gone(p)
	w.gone(e)
	kubetest.Eventually(w.t, "its pods to go", func() error {
		if n := len(w.pods(pool, "")); n > 0 {
			return fmt.Errorf("%d are there", n)
		}
		return nil
	})
}
