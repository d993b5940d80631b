package uninstall

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/bubble"
)

func checkpointOf(name string, cause v1alpha1.CheckpointCause) *v1alpha1.Checkpoint {
	return &v1alpha1.Checkpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-y", Finalizers: []string{v1alpha1.FinalizerCheckpoint}},
		Spec:       v1alpha1.CheckpointSpec{Cause: cause},
	}
}

// Snapshots are their users': they are deleted only if that is allowed, and else nothing
// is changed, whatever may be done with sandboxes.
func TestEmptyRefusesForSnapshots(t *testing.T) {
	c := newClient(t, sandbox("lives"), pool(), checkpointOf("a", v1alpha1.CheckpointSnapshot), checkpointOf("b", v1alpha1.CheckpointPause))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // it waits for no controller
	defer cancel()
	if err := Empty(ctx, Options{Client: c, EndSandboxes: true}); !errors.Is(err, ErrKept) || !strings.Contains(err.Error(), "(1)") {
		t.Fatalf("Empty: %v, want it refused for one snapshot", err)
	}
	if err := Empty(ctx, Options{Client: c, DeleteCheckpoints: true}); !errors.Is(err, ErrLive) {
		t.Fatalf("Empty: %v, want it refused for a sandbox", err)
	}
	var s v1alpha1.Sandbox
	var p v1alpha1.SandboxPool
	var all v1alpha1.CheckpointList
	if err := errors.Join(c.Get(t.Context(), client.ObjectKey{Name: "lives"}, &s), c.Get(t.Context(), client.ObjectKeyFromObject(pool()), &p), c.List(t.Context(), &all)); err != nil {
		t.Fatal(err)
	}
	if s.Spec.End != nil || s.DeletionTimestamp != nil || p.Spec.Replicas != 3 || len(all.Items) != 2 ||
		all.Items[0].DeletionTimestamp != nil || all.Items[1].DeletionTimestamp != nil {
		t.Errorf("end %v, %d replicas, checkpoints %+v; want all left alone", s.Spec.End, p.Spec.Replicas, all.Items)
	}
}

// Checkpoints go before the controller does, which alone can delete their data; those of
// pauses with their sandboxes.
func TestEmptyDeletesCheckpoints(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newClient(t, checkpointOf("a", v1alpha1.CheckpointSnapshot), checkpointOf("b", v1alpha1.CheckpointPause))
		o := Options{Client: c, DeleteCheckpoints: true}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := Empty(ctx, o); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 checkpoints") {
			t.Errorf("without a controller: %v, want what is left after a minute", err)
		}
		done := make(chan error, 1)
		go func() { done <- Empty(t.Context(), o) }()
		synctest.Wait()
		var all v1alpha1.CheckpointList
		if err := c.List(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		for i := range all.Items {
			cp := &all.Items[i]
			if cp.DeletionTimestamp == nil {
				t.Errorf("%s is not deleted", cp.Name)
			}
			controllerutil.RemoveFinalizer(cp, v1alpha1.FinalizerCheckpoint)
			if err := c.Update(t.Context(), cp); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
