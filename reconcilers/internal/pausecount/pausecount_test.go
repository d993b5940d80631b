package pausecount

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/pauseroom"
)

// A timeout takes room by what the cache shows, if its pool allows the mode, and none to
// hibernate.
func TestTakeRoom(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	most := int32(1)
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
	pool.Spec.Pause = &v1alpha1.PoolPause{MaxPaused: &most}
	cache := fake.NewClientBuilder().WithScheme(scheme).WithIndex(&v1alpha1.Sandbox{}, IndexPool, PoolsOf).WithObjects(pool).Build()
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
	var rooms pauseroom.Rooms
	take := func(name string, want bool) {
		t.Helper()
		if ok, err := TakeRoom(t.Context(), &rooms, cache, made[name]); ok != want || err != nil {
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
