package cachetest_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/library/cache"
	"github.com/sandlane/sandlane/library/cache/cachetest"
)

func sandbox(id string) *v1alpha1.Sandbox {
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: id}}
	s.Spec.Namespace = "n"
	return s
}

// Each way of writing is refused if the write was made from an older state, as by a real API
// server.
func TestConflicts(t *testing.T) {
	api := cachetest.GetMockManager(t, cache.Config{}, sandbox("s")).API()
	ctx := t.Context()
	old := &v1alpha1.Sandbox{}
	if err := api.Get(ctx, client.ObjectKey{Name: "s"}, old); err != nil {
		t.Fatal(err)
	}
	s := old.DeepCopy()
	s.Spec.Env = "e"
	if err := api.Update(ctx, s); err != nil {
		t.Fatal(err)
	}
	locked := client.MergeFromWithOptions(old.DeepCopy(), client.MergeFromWithOptimisticLock{})
	stale := func() *v1alpha1.Sandbox {
		s := old.DeepCopy()
		s.Spec.Pool, s.Status.Phase = "p", v1alpha1.SandboxRunning
		return s
	}
	for what, err := range map[string]error{
		"update":        api.Update(ctx, stale()),
		"status update": api.Status().Update(ctx, stale()),
		"patch":         api.Patch(ctx, stale(), locked),
		"status patch":  api.Status().Patch(ctx, stale(), locked),
	} {
		if !apierrors.IsConflict(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused := writes.For(old.UID).Test("/metadata/generation", old.Generation).Set("/spec/pool", "p")
	if err := api.Patch(ctx, stale(), refused.Build()); writes.Judge(err) != writes.TestFailed {
		t.Errorf("JSON patch: %v", err)
	}
	if err := api.Patch(ctx, stale(), writes.For(old.UID).Test("/metadata/generation", s.Generation).Set("/spec/pool", "p").Build()); err != nil {
		t.Error(err)
	}
}

// The generation counts the changes of a spec alone, and the UID is one object's.
func TestGenerations(t *testing.T) {
	api := cachetest.GetMockManager(t, cache.Config{}, sandbox("s")).API()
	ctx := t.Context()
	s := sandbox("t")
	if err := api.Create(ctx, s); err != nil {
		t.Fatal(err)
	}
	uid := s.UID
	if s.Generation != 1 || uid == "" || s.CreationTimestamp.IsZero() {
		t.Errorf("new: %+v", s.ObjectMeta)
	}
	s.Status.Phase = v1alpha1.SandboxRunning
	if err := api.Status().Update(ctx, s); err != nil || s.Generation != 1 {
		t.Errorf("status: %d, %v", s.Generation, err)
	}
	s.Labels = map[string]string{"a": "b"}
	if err := api.Update(ctx, s); err != nil || s.Generation != 1 || s.Status.Phase != v1alpha1.SandboxRunning {
		t.Errorf("label: %d, %v", s.Generation, err)
	}
	s.Spec.Pool = "p"
	if err := api.Update(ctx, s); err != nil || s.Generation != 2 {
		t.Errorf("spec: %d, %v", s.Generation, err)
	}
	if err := api.Patch(ctx, s, writes.For(uid).Set("/spec/pool", "q").Build()); err != nil || s.Generation != 3 || s.UID != uid {
		t.Errorf("patch: %+v, %v", s.ObjectMeta, err)
	}
	if err := api.Delete(ctx, s); err != nil {
		t.Fatal(err)
	}
	again := sandbox("t")
	if err := api.Create(ctx, again); err != nil || again.UID == uid || again.Generation != 1 {
		t.Errorf("made anew: %+v, %v", again.ObjectMeta, err)
	}
}

// Server-side apply, in each of its forms, is refused and changes nothing: it would not reach
// the informers.
func TestServerSideApplyIsRefused(t *testing.T) {
	api := cachetest.GetMockManager(t, cache.Config{}, sandbox("s")).API()
	ctx := t.Context()
	before := &v1alpha1.Sandbox{}
	if err := api.Get(ctx, client.ObjectKey{Name: "s"}, before); err != nil {
		t.Fatal(err)
	}
	const config = `{"apiVersion":"sandlane.dev/v1alpha1","kind":"Sandbox","metadata":{"name":"s"},"spec":{"namespace":"n","pool":"p"}}`
	raw, u := client.RawPatch(types.ApplyPatchType, []byte(config)), &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(config)); err != nil {
		t.Fatal(err)
	}
	apply, owner := client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("test")
	for what, err := range map[string]error{
		"apply":        api.Apply(ctx, apply, owner),
		"status apply": api.Status().Apply(ctx, apply, owner),
		"patch":        api.Patch(ctx, sandbox("s"), raw, owner),
		"patch of new": api.Patch(ctx, sandbox("new"), raw, owner),
		"status patch": api.Status().Patch(ctx, sandbox("s"), raw, owner),
	} {
		if err == nil || !strings.Contains(err.Error(), "server-side apply") {
			t.Errorf("%s: %v", what, err)
		}
	}
	after := &v1alpha1.Sandbox{}
	if err := api.Get(ctx, client.ObjectKey{Name: "s"}, after); err != nil || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("%v, and the sandbox is %+v", err, after)
	}
}
