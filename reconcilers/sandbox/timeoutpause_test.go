package sandbox

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// idleForPause returns a sandbox whose idle release, with the token "t", is to pause it, its pod,
// and its pool, which may have so many that are paused.
func idleForPause(most int32, mode v1alpha1.PauseMode) (*v1alpha1.Sandbox, *corev1.Pod, *v1alpha1.SandboxPool) {
	s, pod, pool := dueForPause(most)
	s.Spec.Timeouts.EndAt, s.Spec.Timeouts.OnTimeoutMode = nil, mode
	s.Spec.Release = &v1alpha1.Release{Token: "t", ClaimID: s.Spec.Binding.ClaimID}
	pool.Spec.Pause.Modes = []v1alpha1.PauseMode{v1alpha1.PauseFreeze, v1alpha1.PauseHibernate}
	return s, pod, pool
}

// An idle sandbox is paused in the mode of its timeouts, and the token goes with that write.
// What cannot be paused is left to be ended.
func TestIdleSandboxIsPaused(t *testing.T) {
	for what, c := range map[string]struct {
		change      func(s *v1alpha1.Sandbox, pod *corev1.Pod)
		most        int32
		mode        v1alpha1.PauseMode
		store       bool
		done, pause bool
	}{
		"idle":                     {nil, 1, v1alpha1.PauseFreeze, false, true, true},
		"its timeouts end it":      {func(s *v1alpha1.Sandbox, _ *corev1.Pod) { s.Spec.Timeouts.OnTimeout = "" }, 1, v1alpha1.PauseFreeze, false, false, false},
		"without freezer":          {func(_ *v1alpha1.Sandbox, pod *corev1.Pod) { pod.Spec.Containers = nil }, 1, v1alpha1.PauseFreeze, false, false, false},
		"its pod is another's":     {func(_ *v1alpha1.Sandbox, pod *corev1.Pod) { pod.Annotations[v1alpha1.AnnotationClaim] = "later" }, 1, v1alpha1.PauseFreeze, false, false, false},
		"without room":             {nil, 0, v1alpha1.PauseFreeze, false, false, false},
		"hibernates":               {nil, 0, v1alpha1.PauseHibernate, true, true, true},
		"hibernates, but nowhere":  {nil, 1, v1alpha1.PauseHibernate, false, false, false},
		"hibernates, not its pool": {func(s *v1alpha1.Sandbox, _ *corev1.Pod) { s.Spec.Pool = "another" }, 1, v1alpha1.PauseHibernate, true, false, false},
	} {
		s, pod, pool := idleForPause(c.most, c.mode)
		if c.change != nil {
			c.change(s, pod)
		}
		g := newRig(t, s, pod, pool)
		g.Hibernates = c.store
		done, err := g.PauseIdle(t.Context(), s, "t")
		got := g.sandbox(t).Spec
		if err != nil || done != c.done || got.Paused != c.pause || c.pause && (got.PauseMode != c.mode || got.Release != nil) || got.End != nil {
			t.Errorf("%s: %t, %v, %+v", what, done, err, got)
		}
	}
}

// Also if the cache does not show its pod yet, an idle sandbox is paused, and not ended.
func TestIdleSandboxWithACacheBehindItsPod(t *testing.T) {
	s, pod, pool := idleForPause(1, v1alpha1.PauseFreeze)
	unclaimed := pod.DeepCopy()
	unclaimed.Annotations, unclaimed.Labels = nil, nil
	for what, shown := range map[string]*corev1.Pod{"no pod": nil, "its pod before the claim": unclaimed} {
		g := newRig(t, s.DeepCopy(), pod.DeepCopy(), pool.DeepCopy())
		g.Client = interceptor.NewClient(g.Client.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if p, ok := o.(*corev1.Pod); ok && shown == nil {
					return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
				} else if ok {
					shown.DeepCopyInto(p)
					return nil
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		if done, err := g.PauseIdle(t.Context(), s, "t"); !done || err != nil {
			t.Errorf("%s: %t, %v", what, done, err)
		}
		if got := g.sandbox(t).Spec; !got.Paused {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

// A timeout takes room by what the cache shows, if its pool allows the mode, and none to
// hibernate.
func TestTakeRoom(t *testing.T) {
	most := int32(1)
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
	pool.Spec.Pause = &v1alpha1.PoolPause{MaxPaused: &most}
	g := newRig(t, pool)
	g.Hibernates = true
	cache := g.Client
	made := map[string]*v1alpha1.Sandbox{}
	for _, name := range []string{"a", "b", "hibernates"} {
		s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		s.Spec.Namespace, s.Spec.Pool, s.Spec.Binding = "n", "p", &v1alpha1.Binding{ClaimID: name}
		if name == "hibernates" {
			s.Spec.Timeouts.OnTimeoutMode = v1alpha1.PauseHibernate
		}
		if err := cache.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		made[name] = s
	}
	take := func(name string, want bool) {
		t.Helper()
		if ok, err := g.takeRoom(t.Context(), made[name]); ok != want || err != nil {
			t.Errorf("%s: %t, %v, want %t", name, ok, err, want)
		}
	}
	show := func(name string, change func(*v1alpha1.Sandbox)) {
		t.Helper()
		change(made[name])
		if err := cache.Update(t.Context(), made[name]); err != nil {
			t.Fatal(err)
		}
	}
	paused := func(paused bool) func(*v1alpha1.Sandbox) {
		return func(s *v1alpha1.Sandbox) {
			s.Spec.Paused = paused
			s.Spec.PauseOrder++
		}
	}
	allow := func(modes ...v1alpha1.PauseMode) {
		t.Helper()
		pool.Spec.Pause.Modes = modes
		if err := cache.Update(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	allow(v1alpha1.PauseFreeze)
	take("a", true)
	take("b", false)
	take("hibernates", false)
	show("a", paused(true))
	take("b", false) // by the cache
	allow(v1alpha1.PauseFreeze, v1alpha1.PauseHibernate)
	take("hibernates", true)
	show("a", paused(false))
	take("b", true)
	take("a", false)
	show("b", func(s *v1alpha1.Sandbox) { s.Spec.End = &v1alpha1.End{} })
	take("a", true)
	if err := cache.Delete(t.Context(), made["a"]); err != nil {
		t.Fatal(err)
	}
	made["c"] = &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c"}}
	made["c"].Spec.Namespace, made["c"].Spec.Pool = "n", "p"
	take("c", true)
	allow(v1alpha1.PauseHibernate)
	take("a", false)
}
