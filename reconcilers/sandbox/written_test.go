package sandbox

import (
	"context"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// A view that lacks the reconciler's own write is not acted on; the view that
// has it is.
func TestViewOlderThanTheOwnWriteIsNotActedOn(t *testing.T) {
	s, pod := bound()
	s.UID = "uid" // and no finalizer yet
	g := newRig(t, s, pod)
	old := g.sandbox(t)
	lagging, writes := false, 0
	g.Client = interceptor.NewClient(g.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if into, ok := o.(*v1alpha1.Sandbox); ok && lagging {
				old.DeepCopyInto(into)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			writes++
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	look := func(wantWrites bool, what string) {
		t.Helper()
		writes = 0
		if _, err := g.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if (writes > 0) != wantWrites {
			t.Errorf("%s: %d writes, want some: %v", what, writes, wantWrites)
		}
	}
	look(true, "first look")
	lagging = true
	look(false, "view without the write")
	lagging = false
	look(true, "view with the write")
}

// A status write that meets another writer's is no fault: nothing of it is written,
// and the sandbox is looked at again soon.
func TestRefusedStatusWriteIsLookedAtAgain(t *testing.T) {
	s, pod := bound()
	s.UID, s.Finalizers = "uid", []string{v1alpha1.FinalizerSandbox}
	g := newRig(t, s, pod)
	plain, met := g.Client, false
	g.Client = interceptor.NewClient(plain.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if !met { // somebody else writes between the look and the write
				met = true
				other := g.sandbox(t)
				other.Labels = map[string]string{"other": "writer"}
				if err := plain.Update(ctx, other); err != nil {
					t.Fatal(err)
				}
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	if wait, _ := g.step(t); !met || wait != retrySoon {
		t.Errorf("met another writer: %v; looked at again after %v, want %v", met, wait, retrySoon)
	}
	if at := g.sandbox(t).Status.Address; at != "" {
		t.Errorf("an old view wrote the address %s", at)
	}
	g.step(t)
	if g.sandbox(t).Status.Address == "" {
		t.Error("the second look wrote nothing")
	}
}
