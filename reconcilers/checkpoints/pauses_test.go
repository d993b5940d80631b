package checkpoints

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// What a pause has kept stays while its sandbox needs it, also if it is deleted, and goes
// when it is restored or with the sandbox; a view that is behind does not let it go.
func TestWhatPausesKept(t *testing.T) {
	succeeded := v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointSucceeded}
	kept := func(s *v1alpha1.Sandbox) {
		s.Spec.Paused, s.Spec.PauseMode, s.Spec.Restore = true, v1alpha1.PauseHibernate, &v1alpha1.Restore{Checkpoint: "a"}
	}
	saving := func(s *v1alpha1.Sandbox) {
		s.Spec.Paused, s.Spec.PauseMode, s.Spec.Binding = true, v1alpha1.PauseHibernate, &v1alpha1.Binding{ClaimID: "c"}
	}
	with := func(all ...func(*v1alpha1.Sandbox)) func(*v1alpha1.Sandbox) {
		return func(s *v1alpha1.Sandbox) {
			for _, change := range all {
				change(s)
			}
		}
	}
	for what, c := range map[string]struct {
		sandbox, live func(*v1alpha1.Sandbox) // nil: there is none; no live: the same
		stays         bool
	}{
		"it hibernates":             {kept, nil, true},
		"it is being restored":      {with(kept, func(s *v1alpha1.Sandbox) { s.Spec.Paused, s.Spec.Binding = false, &v1alpha1.Binding{ClaimID: "d"} }), nil, true},
		"it is about to":            {saving, nil, true},
		"it was resumed meanwhile":  {with(saving, func(s *v1alpha1.Sandbox) { s.Spec.Paused = false }), nil, false},
		"it is frozen since":        {with(saving, func(s *v1alpha1.Sandbox) { s.Spec.PauseMode = v1alpha1.PauseFreeze }), nil, false},
		"it has another pod":        {with(saving, func(s *v1alpha1.Sandbox) { s.Spec.Binding.ClaimID = "d" }), nil, false},
		"it names another":          {with(kept, func(s *v1alpha1.Sandbox) { s.Spec.Restore.Checkpoint = "b" }), nil, false},
		"it is restored":            {func(*v1alpha1.Sandbox) {}, nil, false},
		"it has ended":              {with(kept, func(s *v1alpha1.Sandbox) { s.Spec.End = &v1alpha1.End{} }), nil, false},
		"another of this name":      {with(kept, func(s *v1alpha1.Sandbox) { s.UID = "other" }), nil, false},
		"of another namespace":      {with(kept, func(s *v1alpha1.Sandbox) { s.Spec.Namespace = "other" }), nil, false},
		"about to, elsewhere":       {with(saving, func(s *v1alpha1.Sandbox) { s.Spec.Namespace = "other" }), nil, false},
		"it is gone":                {nil, nil, false},
		"the view is behind":        {func(*v1alpha1.Sandbox) {}, kept, true},
		"the view lacks it":         {nil, kept, true},
		"the view is behind an end": {kept, with(kept, func(s *v1alpha1.Sandbox) { s.Spec.End = &v1alpha1.End{} }), true},
	} {
		for _, deleted := range []bool{false, true} {
			cp := one("a", succeeded)
			cp.Spec.Cause, cp.Spec.SandboxID, cp.Spec.SandboxUID, cp.Spec.ClaimID = v1alpha1.CheckpointPause, "s", "u", "c"
			objects := []client.Object{cp}
			read := func(change func(*v1alpha1.Sandbox)) *v1alpha1.Sandbox {
				s := &v1alpha1.Sandbox{}
				s.Name, s.UID, s.Spec.Namespace = "s", "u", "ns"
				change(s)
				return s
			}
			if c.sandbox != nil {
				objects = append(objects, read(c.sandbox))
			}
			w := newWorld(t, objects...)
			if c.live != nil {
				ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}
				w.r.Live = fake.NewClientBuilder().WithScheme(w.client.Scheme()).WithObjects(ns, read(c.live)).Build()
			}
			w.keep("a")
			if deleted {
				if err := w.client.Delete(t.Context(), cp); err != nil {
					t.Fatal(err)
				}
			}
			phase, again := w.reconcile("a")
			if stays := phase == v1alpha1.CheckpointSucceeded && w.kept() == "[uid-a]"; stays != c.stays || stays && again != pausePoll || !stays && (phase != "" || w.kept() != "[]") {
				t.Errorf("%s, deleted %v: %q, kept %s, again in %s", what, deleted, phase, w.kept(), again)
			}
		}
	}
}

// What a pause has not kept whole goes as any other does.
func TestPauseThatKeptNothing(t *testing.T) {
	cp := one("a", v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointCreating})
	cp.Spec.Cause, cp.Spec.SandboxID = v1alpha1.CheckpointPause, "s"
	w := newWorld(t, cp)
	if err := w.client.Delete(t.Context(), cp); err != nil {
		t.Fatal(err)
	}
	if phase, _ := w.reconcile("a"); phase != "" {
		t.Errorf("it is kept: %q", phase)
	}
}

// A namespace that is being deleted takes the sandboxes along whose files it has: else what
// they need would keep it. A view that is behind ends nothing.
func TestWhatPausesKeptGoesWithItsNamespace(t *testing.T) {
	for what, c := range map[string]struct {
		cp, ns bool // is being deleted
		behind bool
		ends   bool
		// elsewhere: the sandbox is in another namespace, and the checkpoint only names it.
		elsewhere bool
	}{
		"all are deleted":             {true, true, false, true, false},
		"the checkpoint alone":        {true, false, false, false, false},
		"not the checkpoint yet":      {false, true, false, false, false},
		"the view is behind a resume": {true, true, true, false, false},
		"it names another's sandbox":  {true, true, false, false, true},
	} {
		cp := one("a", v1alpha1.CheckpointStatus{Phase: v1alpha1.CheckpointSucceeded})
		cp.Spec.Cause, cp.Spec.SandboxID, cp.Spec.SandboxUID, cp.Spec.ClaimID = v1alpha1.CheckpointPause, "s", "u", "c"
		s := &v1alpha1.Sandbox{}
		s.Name, s.UID, s.Generation, s.Spec.Namespace = "s", "u", 3, "ns"
		if c.elsewhere {
			s.Spec.Namespace = "other"
		}
		s.Spec.Paused, s.Spec.PauseMode, s.Spec.Restore = true, v1alpha1.PauseHibernate, &v1alpha1.Restore{Checkpoint: "a"}
		now := s.DeepCopy()
		if c.behind {
			now.Generation++
		}
		w := newWorld(t, cp, now)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Finalizers: []string{"test/holds"}}}
		if c.ns {
			ns.DeletionTimestamp = new(metav1.NewTime(start))
		}
		w.r.Live = fake.NewClientBuilder().WithScheme(w.client.Scheme()).WithObjects(ns, s).Build()
		w.r.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, real client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if into, ok := o.(*v1alpha1.Sandbox); ok {
					s.DeepCopyInto(into)
					return nil
				}
				return real.Get(ctx, key, o, opts...)
			},
			Patch: func(ctx context.Context, real client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				err := real.Patch(ctx, o, p, opts...)
				if err != nil && strings.Contains(err.Error(), "test failed") { // as the API server says it
					return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Code: 422, Message: err.Error()}}
				}
				return err
			},
		})
		w.keep("a")
		if c.cp {
			if err := w.client.Delete(t.Context(), cp); err != nil {
				t.Fatal(err)
			}
		}
		phase, _ := w.reconcile("a")
		if err := w.client.Get(t.Context(), client.ObjectKey{Name: "s"}, now); err != nil {
			t.Fatal(err)
		}
		if e := now.Spec.End; (e != nil) != c.ends || c.ends && (e.Reason != v1alpha1.EndDeleted || phase != "") || !c.ends && (phase == v1alpha1.CheckpointSucceeded) == c.elsewhere {
			t.Errorf("%s: the end is %+v, the checkpoint is %q", what, e, phase)
		}
	}
}
