package reconcilers_test

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// An end time that is extended after the controller has found it over, and before
// its end is written, counts; and so does the new one when it comes.
func TestExtendedSandboxIsNotEnded(t *testing.T) {
	var extended atomic.Bool
	var tries atomic.Int32
	w := newWorld(t, func(w *world) {
		w.faults = &interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			raw, _ := p.Data(o)
			if _, ours := o.(*v1alpha1.Sandbox); ours && bytes.Contains(raw, []byte(v1alpha1.EndEndAt)) {
				if tries.Add(1) == 1 {
					if err := w.setEndAt(ctx, o.GetName(), time.Hour); err != nil {
						return err
					}
					extended.Store(true)
				}
			}
			return c.Patch(ctx, o, p, opts...)
		}}
	})
	w.pool("p", 1, 0)
	w.await("p", v1alpha1.PodIdle, 1)
	at := metav1.NewTime(time.Now().Add(time.Second))
	s, _ := w.claim("p", v1alpha1.PodRunning, func(s *v1alpha1.Sandbox) { s.Spec.Timeouts.EndAt = &at })
	kubetest.Eventually(t, "the extension to be seen", func() error {
		now := w.sandbox(s.Name)
		if !extended.Load() || now.Status.Phase != v1alpha1.SandboxRunning {
			return fmt.Errorf("extended %v, phase %q", extended.Load(), now.Status.Phase)
		}
		// A write of the controller's that came after shows that it has looked
		// again; it writes the generation that it has seen.
		if now.Spec.End == nil && now.Status.Conditions[0].ObservedGeneration != now.Generation {
			return fmt.Errorf("generation %d of %d", now.Status.Conditions[0].ObservedGeneration, now.Generation)
		}
		return nil
	})
	if end := w.sandbox(s.Name).Spec.End; end != nil {
		t.Fatalf("ended, although it was extended: %+v", end)
	}
	if err := w.setEndAt(t.Context(), s.Name, time.Second); err != nil {
		t.Fatal(err)
	}
	if s = w.awaitSandbox(s, v1alpha1.SandboxEnded); s.Spec.End.Reason != v1alpha1.EndEndAt {
		t.Errorf("end %+v", s.Spec.End)
	}
}

func (w *world) setEndAt(ctx context.Context, id string, in time.Duration) error {
	at := time.Now().Add(in).UTC().Format(time.RFC3339)
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: id}}
	return w.c.Patch(ctx, s, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"timeouts":{"endAt":%q}}}`, at)))
}
