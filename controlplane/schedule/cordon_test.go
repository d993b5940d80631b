package schedule

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A claim takes a pod of a cordoned node only where no other fits, even if that one has to be
// changed for it. Nodes are cordoned, and are not any more, while their pods are in stock.
func TestPodsOfCordonedNodesComeLast(t *testing.T) {
	s := newStock(time.Minute, 0)
	s.setCordoned(map[string]bool{"down": true})
	offer := func(name, node, image string) {
		pod := idlePod("ns", name)
		pod.Spec.NodeName, pod.Spec.Containers = node, []corev1.Container{{Name: "main", Image: image}}
		s.offer(pod)
	}
	picks := func(want string, images map[string]string) {
		t.Helper()
		if rec := s.pick(images); rec == nil || rec.name != want {
			t.Errorf("picked %+v, want %s", rec, want)
		}
	}
	offer("p1", "down", "a")
	offer("p2", "up", "b")
	offer("p3", "up", "b")
	offer("p4", "down", "b")
	picks("p2", map[string]string{"main": "a"}) // p1 has the image
	s.setCordoned(map[string]bool{"up": true})
	picks("p1", map[string]string{"main": "a"})
	picks("p4", nil)
	offer("p5", "down", "a")
	picks("p5", nil) // p3 has been idle for longer
	picks("p3", nil)
	if len(s.shapes) == 0 || s.reserved() != 5 {
		t.Errorf("%d shapes, %d reserved", len(s.shapes), s.reserved())
	}
}

// What the set is told counts for the pools that it has, and for those that come.
func TestCordonsReachEveryPool(t *testing.T) {
	set := NewSet(newFakeAPI())
	defer set.Shutdown()
	of := func(pool string) bool {
		set.PoolChanged("ns", pool, true)
		m := set.pools[types.NamespacedName{Namespace: "ns", Name: pool}]
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.stock.cordoned["n"]
	}
	if of("before") {
		t.Error("cordoned before it was told")
	}
	set.SetCordoned(map[string]bool{"n": true})
	if !of("before") || !of("after") {
		t.Errorf("before: %v, after: %v", of("before"), of("after"))
	}
}
