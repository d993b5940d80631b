package activation

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// onFirstPatch returns a client whose first PATCH of a sandbox is handed to do.
func (w *world) onFirstPatch(do func(patch func() error) error) client.Client {
	var once sync.Once
	return interceptor.NewClient(w.c, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			patch := func() error { return c.Patch(ctx, o, p, opts...) }
			first := false
			if _, sandbox := o.(*v1alpha1.Sandbox); sandbox {
				once.Do(func() { first = true })
			}
			if first {
				return do(patch)
			}
			return patch()
		},
	})
}

// If a sandbox is ended between the read and the write of the binding, it stays ended, and
// the request fails with routing.ErrEnded.
func TestEndedWhileItIsBound(t *testing.T) {
	w := newWorld(t)
	w.idle(1)
	id := kubetest.Name("ends")
	w.make(id, func(*v1alpha1.SandboxSpec) {})
	g := w.gateway(w.onFirstPatch(func(patch func() error) error {
		s := w.sandbox(id)
		s.Spec.End = &v1alpha1.End{Reason: v1alpha1.EndReleased, At: metav1.Now()}
		if err := w.c.Update(t.Context(), s); err != nil {
			t.Error(err)
		}
		return patch()
	}))
	g.fails(t, w.request(id, false, 10*time.Second), routing.ErrEnded)
	if s := w.sandbox(id); s.Spec.Binding != nil {
		t.Errorf("an ended sandbox is bound to %+v", s.Spec.Binding)
	}
	if p := w.pods()[0]; v1alpha1.PhaseOf(&p) != v1alpha1.PodIdle {
		t.Errorf("the pod is %s", v1alpha1.PhaseOf(&p))
	}
}

// Of two gateways that bind at once the second follows the first, whether the sandbox was
// bound before or not.
func TestBoundByAnotherMeanwhile(t *testing.T) {
	for name, was := range map[string]*v1alpha1.Binding{
		"unbound":  nil,
		"lost pod": {ClaimID: "c1", PodName: "none", PodUID: "none"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.idle(2)
			id := kubetest.Name("both")
			w.make(id, func(s *v1alpha1.SandboxSpec) { s.Binding = was })
			other := w.gateway(w.c)
			var theirs string
			g := w.gateway(w.onFirstPatch(func(patch func() error) error {
				other.activates(t, w.request(id, false, 20*time.Second))
				theirs = w.backed(id).Name
				return patch()
			}))
			g.activates(t, w.request(id, false, 40*time.Second))
			if pod := w.backed(id); pod.Name != theirs {
				t.Errorf("on pod %s, and the gateway that bound first answered with %s", pod.Name, theirs)
			}
			if r := g.cache.Get(id); r == nil || r.PodUID != string(w.backed(id).UID) {
				t.Errorf("route %+v", r)
			}
		})
	}
}

// After a write of a binding whose answer was lost, a read finds the binding, and no other
// pod is bound.
func TestBindingWithALostAnswer(t *testing.T) {
	w := newWorld(t)
	w.idle(1) // there is no other pod
	id := kubetest.Name("lost")
	w.make(id, func(*v1alpha1.SandboxSpec) {})
	written := ""
	g := w.gateway(w.onFirstPatch(func(patch func() error) error {
		if err := patch(); err != nil {
			return err
		}
		written = w.sandbox(id).Spec.Binding.ClaimID
		return errors.New("connection reset by peer")
	}))
	g.activates(t, w.request(id, false, 20*time.Second))
	if s := w.sandbox(id); s.Spec.Binding.ClaimID != written {
		t.Errorf("claim %s was bound, claim %s has the pod", written, s.Spec.Binding.ClaimID)
	}
	w.backed(id)
}
