package builds

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// ready makes a Ready build with its pool.
func (w *world) ready(name string, tagged time.Time) {
	w.t.Helper()
	w.build(name, func(b *v1alpha1.TemplateBuild) {
		b.Status.Phase, b.Status.Image = v1alpha1.BuildReady, image
		b.Status.Tags = []v1alpha1.BuildTag{{Name: "default", At: metav1.NewMicroTime(tagged)}}
		if err := w.r.Create(w.t.Context(), w.r.templatePool(b)); err != nil {
			w.t.Fatal(err)
		}
	})
}

// A pass that has made a build Ready ends when the cache knows it: a later one, for an older build,
// would take the names back.
func TestReadyIsSeen(t *testing.T) {
	w := newWorld(t)
	w.ready(first, w.clock.Now())
	w.build(second, func(b *v1alpha1.TemplateBuild) { b.Status.Phase, b.Status.Image = v1alpha1.BuildStarting, image })
	w.reconcile(second)
	w.setPool("template-"+second, func(s *v1alpha1.SandboxPoolStatus) { s.Idle = 1 })
	behind := 3 // reads of the cache after the write
	stale := &v1alpha1.TemplateBuild{}
	if err := w.r.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: second}, stale); err != nil {
		t.Fatal(err)
	}
	w.r.Client = interceptor.NewClient(w.r.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := c.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			if b, is := o.(*v1alpha1.TemplateBuild); is && b.Status.Phase == v1alpha1.BuildReady && b.Name == second && behind > 0 {
				behind--
				stale.DeepCopyInto(b)
			}
			return nil
		},
	})
	key := client.ObjectKey{Namespace: "a", Name: second}
	if _, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil || behind != 0 {
		t.Fatalf("%v, with %d stale reads to come", err, behind)
	}
	w.reconcile(first)
	if a, b := w.pool("template-" + first).Annotations[v1alpha1.AnnotationAliases], w.pool("template-" + second).Annotations[v1alpha1.AnnotationAliases]; a != "" || b != "t,x" {
		t.Errorf("names %q and %q", a, b)
	}
}

// A build that no tag names any more gets no pods, and goes with its last sandbox and snapshot.
func TestUntaggedBuildsGo(t *testing.T) {
	pool := "template-" + first
	sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: v1alpha1.SandboxSpec{Namespace: "a", Pool: pool}}
	snapshot := &v1alpha1.Checkpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "c"}, Status: v1alpha1.CheckpointStatus{Pool: pool}}
	for what, c := range map[string]struct {
		user   client.Object
		status func(*v1alpha1.SandboxPoolStatus)
	}{
		"nothing":                        {},
		"a pod":                          {status: func(s *v1alpha1.SandboxPoolStatus) { s.Running = 1 }},
		"a claim that waits":             {status: func(s *v1alpha1.SandboxPoolStatus) { s.WaitingClaims = 1 }},
		"a sandbox whose pod was let go": {user: sandbox.DeepCopy()},
		"a snapshot":                     {user: snapshot.DeepCopy()},
	} {
		w := newWorld(t)
		w.r.Checkpoints = true
		w.ready(first, w.clock.Now())
		if w.reconcile(first); w.pool(pool).Spec.Replicas != 1 {
			t.Fatalf("%s: the build with the tag has no pod", what)
		}
		w.ready(second, w.clock.Now().Add(time.Second))
		w.reconcile(second)
		if c.user != nil {
			if err := w.r.Create(t.Context(), c.user); err != nil {
				t.Fatal(err)
			}
		}
		if c.status != nil {
			w.setPool(pool, c.status)
		}
		if w.reconcile(first) == nil || w.pool(pool).Spec.Replicas != 0 {
			t.Errorf("%s: pods still wait in the pool without a tag", what)
		}
		if left := w.reconcile(first) != nil; left != (what != "nothing") {
			t.Errorf("%s: the build is left: %v", what, left)
		}
		if w.reconcile(second) == nil {
			t.Errorf("%s: the build with the tag is gone", what)
		}
	}
}

// A template that nobody used for a day has no pod that waits, until it is used again; what a user
// has scaled stays.
func TestUnusedTemplatesHaveNoPod(t *testing.T) {
	w := newWorld(t)
	w.ready(first, w.clock.Now())
	pool := func() *v1alpha1.SandboxPool { return w.pool("template-" + first) }
	set := func(change func(p *v1alpha1.SandboxPool)) {
		t.Helper()
		p := pool()
		change(p)
		if err := w.r.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	want := func(replicas int32, when string) {
		t.Helper()
		if w.reconcile(first); pool().Spec.Replicas != replicas {
			t.Errorf("%s: %d replicas, want %d", when, pool().Spec.Replicas, replicas)
		}
	}
	want(1, "new")
	w.clock.Step(unusedFor - time.Minute)
	want(1, "within a day")
	w.clock.Step(2 * time.Minute)
	want(0, "after a day")
	set(func(p *v1alpha1.SandboxPool) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationLastCreate, w.clock.Now().Format(time.RFC3339Nano))
	})
	want(1, "used again")
	w.clock.Step(unusedFor + time.Minute)
	set(func(p *v1alpha1.SandboxPool) { p.Spec.Replicas = 5 })
	want(5, "scaled by hand")
	set(func(p *v1alpha1.SandboxPool) {
		p.Spec.Replicas = 0
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationLastCreate, w.clock.Now().Format(time.RFC3339Nano))
	})
	want(0, "scaled to none by hand, and used")
}
