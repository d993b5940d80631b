package sandboxpool

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

func TestDecideScale(t *testing.T) {
	for _, tt := range []struct {
		name              string
		counts            counts
		replicas, maxPods int
		probing           bool
		want              scaling
	}{
		{name: "empty", replicas: 3, want: scaling{create: 3}},
		{name: "warming ones count", counts: counts{warming: 2, idle: 1, total: 3}, replicas: 3},
		{name: "claimed ones do not", counts: counts{idle: 1, running: 5, total: 6}, replicas: 3, want: scaling{create: 2}},
		{name: "too many", counts: counts{idle: 5, total: 5}, replicas: 3, want: scaling{remove: 2}},
		{name: "down to none", counts: counts{warming: 1, idle: 2, running: 4, total: 7}, want: scaling{remove: 3}},
		{name: "maxPods", counts: counts{idle: 1, running: 3, total: 4}, replicas: 3, maxPods: 5, want: scaling{create: 1, full: true}},
		{name: "maxPods reached", counts: counts{running: 5, total: 5}, replicas: 3, maxPods: 5, want: scaling{full: true}},
		{name: "maxPods, all served", counts: counts{idle: 3, running: 2, total: 5}, replicas: 3, maxPods: 5},
		{name: "pods that are going fill maxPods", counts: counts{running: 3, deleting: 2, total: 5}, replicas: 3, maxPods: 5, want: scaling{full: true}},
		{name: "maxPods lowered", counts: counts{idle: 3, running: 3, total: 6}, replicas: 3, maxPods: 4, want: scaling{remove: 2, full: true}},
		{name: "maxPods lowered, some going", counts: counts{idle: 1, running: 3, deleting: 2, total: 6}, replicas: 3, maxPods: 4, want: scaling{full: true}},
		{name: "maxPods below what is claimed", counts: counts{idle: 1, running: 9, total: 10}, replicas: 1, maxPods: 4, want: scaling{remove: 1, full: true}},
		{name: "maxPods lowered below the claimed, nothing to remove", counts: counts{running: 9, total: 9}, replicas: 1, maxPods: 4, want: scaling{full: true}},
		{name: "trouble, one at a time", replicas: 10, probing: true, want: scaling{create: 1}},
		{name: "trouble, one is under way", counts: counts{warming: 1, total: 1}, replicas: 10, probing: true},
		{name: "new template, a quarter at a time", counts: counts{idle: 12, outdated: 12, total: 12}, replicas: 12, want: scaling{remove: 3}},
		{name: "new template, stock not full", counts: counts{idle: 9, warming: 3, outdated: 9, total: 12}, replicas: 12},
		{name: "new template, last ones", counts: counts{idle: 12, outdated: 1, total: 12}, replicas: 12, want: scaling{remove: 1}},
		{name: "one waits for its address", counts: counts{idle: 2, waiting: waiting(1), total: 3}, replicas: 3, want: scaling{create: 1}},
		{name: "some wait, all replaced", counts: counts{idle: 3, waiting: waiting(3), total: 6}, replicas: 3},
		{name: "more wait than a small pool may have", counts: counts{idle: 3, waiting: waiting(22), total: 25}, replicas: 3, want: scaling{release: 2}},
		{name: "more wait than a large pool has replicas", counts: counts{idle: 30, waiting: waiting(33), total: 63}, replicas: 30, want: scaling{release: 3}},
		{name: "down to none, some wait", counts: counts{idle: 1, waiting: waiting(2), total: 3}, want: scaling{remove: 1, release: 2}},
		{name: "those that wait fill maxPods", counts: counts{idle: 1, running: 2, waiting: waiting(2), total: 5}, replicas: 3, maxPods: 5, want: scaling{full: true, release: 2}},
		{name: "those that wait leave some room", counts: counts{running: 2, waiting: waiting(2), total: 4}, replicas: 2, maxPods: 5, want: scaling{create: 1, full: true, release: 1}},
		{name: "maxPods lowered, some wait", counts: counts{idle: 2, running: 2, waiting: waiting(2), total: 6}, replicas: 2, maxPods: 4, want: scaling{release: 2}},
		{name: "maxPods lowered below the stock, some wait", counts: counts{idle: 2, running: 2, waiting: waiting(1), total: 5}, replicas: 2, maxPods: 3, want: scaling{remove: 1, release: 1, full: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := decideScale(tt.counts, tt.replicas, tt.maxPods, tt.probing); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func waiting(n int) []*corev1.Pod { return make([]*corev1.Pod, n) }

func TestCensusNeverSparesAClaimedPod(t *testing.T) {
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "pool"}}
	var pods []corev1.Pod
	add := func(name string, phase v1alpha1.PodPhase, change ...func(*view)) {
		v := newTestPod(phase, change...)
		v.pod.Name, v.pod.UID = name, types.UID(name)
		v.pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind("SandboxPool"))}
		pods = append(pods, *v.pod)
	}
	age := func(d time.Duration) func(*view) {
		return func(v *view) { v.pod.CreationTimestamp = metav1.NewTime(now.Add(-d)) }
	}
	add("idle-new", v1alpha1.PodIdle, age(time.Minute))
	add("idle-old", v1alpha1.PodIdle, age(time.Hour))
	add("idle-unready", v1alpha1.PodIdle, unready)
	add("idle-outdated", v1alpha1.PodIdle, func(v *view) { v.pod.Annotations[v1alpha1.AnnotationTemplateHash] = "old" })
	add("warming", v1alpha1.PodWarming)
	add("waiting-new", v1alpha1.PodWarming)
	add("waiting-old", v1alpha1.PodWarming, age(time.Hour))
	add("going", v1alpha1.PodIdle, deleting)
	for _, phase := range []v1alpha1.PodPhase{v1alpha1.PodStarting, v1alpha1.PodRunning, v1alpha1.PodStopping, v1alpha1.PodFailed} {
		add(string(phase), phase)
	}
	stranger := newTestPod(v1alpha1.PodIdle)
	pods = append(pods, *stranger.pod) // of an earlier pool of this name
	c := census(pods, "h", pool, map[types.UID]bool{"waiting-new": true, "waiting-old": true})
	var order []string
	for _, p := range c.spare {
		order = append(order, p.Name)
	}
	want := []string{"warming", "idle-outdated", "idle-unready", "idle-old", "idle-new"}
	if len(order) != len(want) {
		t.Fatalf("spare %v, want %v", order, want)
	}
	for i := range want {
		if order[i] != want[i] {
			t.Errorf("spare %v, want %v", order, want)
			break
		}
	}
	if len(c.waiting) != 2 || c.waiting[0].Name != "waiting-old" {
		t.Errorf("waiting %v", c.waiting)
	}
	if c.total != 13 || c.deleting != 1 || c.idle != 4 || c.unavailableIdle != 1 || c.outdated != 1 || c.warming != 1 ||
		c.starting != 1 || c.running != 1 || c.stopping != 1 || c.failed != 1 {
		t.Errorf("%+v", c)
	}
}

func TestPhaseOrder(t *testing.T) {
	pool := &v1alpha1.SandboxPool{Spec: v1alpha1.SandboxPoolSpec{Replicas: 2}}
	for _, tt := range []struct {
		name string
		c    counts
		out  outcome
		want v1alpha1.PoolPhase
	}{
		{"nothing yet", counts{warming: 2}, outcome{}, v1alpha1.PoolPending},
		{"some", counts{idle: 1, warming: 1}, outcome{}, v1alpha1.PoolScalingUp},
		{"some, in trouble", counts{idle: 1}, outcome{trouble: &trouble{}}, v1alpha1.PoolScalingUp},
		{"too many", counts{idle: 3}, outcome{scaling: scaling{remove: 1}}, v1alpha1.PoolScalingDown},
		{"unready", counts{idle: 2, unavailableIdle: 1}, outcome{}, v1alpha1.PoolDegraded},
		{"full", counts{running: 2}, outcome{scaling: scaling{full: true}}, v1alpha1.PoolReady},
		{"all", counts{idle: 2}, outcome{}, v1alpha1.PoolReady},
	} {
		if got := phase(pool, tt.c, tt.out); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	at := metav1.NewTime(now)
	pool.DeletionTimestamp = &at
	if got := phase(pool, counts{}, outcome{}); got != v1alpha1.PoolTerminating {
		t.Errorf("being deleted: %s", got)
	}
}

func TestExpectations(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(now)
	e := NewPoolExpectations(c)
	p, q := types.NamespacedName{Namespace: "n", Name: "p"}, types.NamespacedName{Namespace: "n", Name: "q"}
	e.CreationObserved(p) // of a pool that expects nothing
	e.ExpectCreations(p, 2)
	e.ExpectDeletions(p, "a")
	e.CreationObserved(p)
	if e.Satisfied(p) || !e.Satisfied(q) {
		t.Error("p waits, q does not")
	}
	e.CreationObserved(p)
	e.DeletionObserved(p, "another")
	if e.Satisfied(p) {
		t.Error("satisfied without the deletion")
	}
	e.DeletionObserved(p, "a")
	if !e.Satisfied(p) {
		t.Error("not satisfied")
	}
	e.CreationObserved(p) // one more than expected must not hide the next
	e.ExpectCreations(p, 1)
	if e.Satisfied(p) {
		t.Error("a stray observation hides an expectation")
	}
	c.SetTime(now.Add(expectationTTL))
	if !e.Satisfied(p) {
		t.Error("not satisfied after the TTL")
	}
	e.ExpectDeletions(p, "b")
	e.DeleteExpectations(p)
	if !e.Satisfied(p) {
		t.Error("not satisfied after it was forgotten")
	}
}

func TestBackoff(t *testing.T) {
	at := now
	b := newCreationBackoff(func() time.Time { return at })
	p := types.NamespacedName{Name: "p"}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		b.failed(p, "h", "Forbidden", "no")
		b.failed(p, "h", "Forbidden", "no, again") // of the same batch
		tr, wait := b.state(p, "h")
		if tr == nil || tr.message != "no, again" || wait != want*time.Second {
			t.Errorf("%+v, wait %v, want %v", tr, wait, want*time.Second)
		}
		at = at.Add(wait)
	}
	if tr, _ := b.state(p, "another template"); tr != nil {
		t.Errorf("another template inherits %+v", tr)
	}
	b.succeeded(p, "another template")
	if tr, _ := b.state(p, "h"); tr == nil {
		t.Error("another template's success clears the trouble")
	}
	b.succeeded(p, "h")
	if tr, wait := b.state(p, "h"); tr != nil || wait != 0 {
		t.Errorf("after a success: %+v, %v", tr, wait)
	}
}
