package pausecount

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Timeouts that pass at the same moment, before the cache shows the first pause, take no more room
// than the pool has; room comes back when a pause fails, ends, or goes with its sandbox.
func TestRooms(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	most := int32(1)
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
	pool.Spec.Pause = &v1alpha1.PoolPause{MaxPaused: &most}
	elsewhere := pool.DeepCopy()
	elsewhere.Name = "elsewhere"
	cache := fake.NewClientBuilder().WithScheme(scheme).WithIndex(&v1alpha1.Sandbox{}, IndexPool, PoolsOf).WithObjects(pool, elsewhere).Build()
	made := map[string]*v1alpha1.Sandbox{}
	for _, name := range []string{"a", "b", "c"} {
		s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		s.Spec.Namespace, s.Spec.Pool, s.Spec.Binding = "n", "p", &v1alpha1.Binding{ClaimID: name}
		if name == "c" {
			s.Spec.Pool = "elsewhere"
		}
		if err := cache.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		made[name] = s
	}
	var rooms Rooms
	take := func(name string, want bool) {
		t.Helper()
		if ok, err := rooms.Take(t.Context(), cache, made[name]); ok != want || err != nil {
			t.Errorf("%s: %t, %v, want %t", name, ok, err, want)
		}
	}
	show := func(name string, paused bool) {
		t.Helper()
		made[name].Spec.Paused = paused
		made[name].Spec.PauseOrder++
		if err := cache.Update(t.Context(), made[name]); err != nil {
			t.Fatal(err)
		}
	}
	take("a", true)
	take("b", false)
	take("a", true) // again: it is the one that took it
	take("c", true) // of another pool
	rooms.GiveBack(made["a"])
	take("b", true)
	take("a", false)
	show("b", true)
	take("a", false) // by the cache
	show("b", false)
	take("a", true)
	show("a", true) // and between two looks
	show("a", false)
	take("b", true)
	if err := cache.Delete(t.Context(), made["b"]); err != nil {
		t.Fatal(err)
	}
	take("a", true)
	if len(rooms.taken) != 2 {
		t.Errorf("left: %s", fmt.Sprint(rooms.taken))
	}
}
