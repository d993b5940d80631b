package reconcilers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/kubetest"
)

// diary notes what becomes of a namespace's pods, from a watch of its own, since
// all that were there were known to it.
type diary struct {
	mu sync.Mutex
	// live are the pods that are neither deleted nor being deleted, by phase.
	live            map[types.UID]v1alpha1.PodPhase
	made, gone      int
	mostUnclaimed   int
	leastIdle       int
	lostWhenClaimed []string
}

func keepDiary(w *world) *diary {
	w.t.Helper()
	d := &diary{live: map[types.UID]v1alpha1.PodPhase{}}
	events, err := w.c.Watch(context.Background(), &corev1.PodList{}, client.InNamespace(w.ns))
	if err != nil {
		w.t.Fatalf("watching pods: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range events.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok {
				d.note(e.Type, pod)
			}
		}
	}()
	w.t.Cleanup(func() { events.Stop(); <-done })
	kubetest.Eventually(w.t, "the diary to know the pods", func() error {
		var there corev1.PodList
		if err := w.c.List(w.t.Context(), &there, client.InNamespace(w.ns)); err != nil {
			return err
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, pod := range there.Items {
			if d.live[pod.UID] != v1alpha1.PhaseOf(&pod) && pod.DeletionTimestamp == nil {
				return fmt.Errorf("pod %s is %s, and known as %q", pod.Name, v1alpha1.PhaseOf(&pod), d.live[pod.UID])
			}
		}
		return nil
	})
	d.read()
	return d
}

func (d *diary) note(kind watch.EventType, pod *corev1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, known := d.live[pod.UID]
	if kind == watch.Added {
		d.made++
	}
	if kind == watch.Deleted || pod.DeletionTimestamp != nil {
		if known {
			d.gone++
			if pod.Annotations[v1alpha1.AnnotationClaim] != "" {
				d.lostWhenClaimed = append(d.lostWhenClaimed, pod.Name)
			}
		}
		delete(d.live, pod.UID)
	} else {
		d.live[pod.UID] = v1alpha1.PhaseOf(pod)
	}
	unclaimed, idle := 0, 0
	for _, phase := range d.live {
		switch phase {
		case v1alpha1.PodIdle:
			idle++
			unclaimed++
		case v1alpha1.PodWarming:
			unclaimed++
		}
	}
	d.mostUnclaimed, d.leastIdle = max(d.mostUnclaimed, unclaimed), min(d.leastIdle, idle)
}

// read returns pods made and gone, and the most unclaimed ones and fewest idle
// ones at a time, all since the last call.
func (d *diary) read() (made, gone, most, fewest int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	made, gone, most, fewest = d.made, d.gone, d.mostUnclaimed, d.leastIdle
	d.made, d.gone, d.mostUnclaimed, d.leastIdle = 0, 0, 0, 1<<30
	return made, gone, most, fewest
}

func (w *world) scaleTo(pool *v1alpha1.SandboxPool, replicas int32) {
	w.t.Helper()
	before := pool.DeepCopy()
	pool.Spec.Replicas = replicas
	if err := w.c.Patch(w.t.Context(), pool, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

// awaitIdle is await for many pods.
func (w *world) awaitIdle(pool string, n int) {
	w.t.Helper()
	kubetest.Eventually(w.t, fmt.Sprintf("%d idle pods", n), func() error {
		if idle, all := len(w.pods(pool, v1alpha1.PodIdle)), len(w.pods(pool, "")); idle != n {
			return fmt.Errorf("%d of %d", idle, all)
		}
		return nil
	})
}

// scaleSizes are how many pods TestScaleWithALaggingWatch makes first, and again after
// it has taken them away; with SANDLANE_SCALE=full, as in `make test-all`, they are more.
func scaleSizes() (many, again int) {
	if os.Getenv("SANDLANE_SCALE") == "full" {
		return 200, 50
	}
	return 60, 20
}

// claimPicked claims a pod that the controller has picked for deletion, if there is one;
// the controller may be faster.
func (w *world) claimPicked(pool string, claimed map[types.UID]string) {
	w.t.Helper()
	for _, pod := range w.pods(pool, v1alpha1.PodIdle) {
		if _, picked := pod.Annotations[v1alpha1.AnnotationScaleDownProtected]; !picked || pod.DeletionTimestamp != nil {
			continue
		}
		s := w.newSandbox(pool, &pod)
		switch err := w.c.Patch(w.t.Context(), pod.DeepCopy(), claimPatch(s, v1alpha1.PodRunning).Build()); {
		case err == nil:
			claimed[pod.UID] = s.Name
		case !writes.Moved(err):
			w.t.Fatalf("claiming pod %s: %v", pod.Name, err)
		}
		return
	}
}

// TestScaleWithALaggingWatch is from none to many, to none, and to some again with a
// watch two seconds late, and claims while the pool shrinks.
func TestScaleWithALaggingWatch(t *testing.T) {
	const lag, claims = 2 * time.Second, 10
	many, again := scaleSizes()
	w := newWorld(t, func(w *world) { w.watchLag = lag })
	d := keepDiary(w)
	pool := w.pool("p", 0, 0)
	w.scaleTo(pool, int32(many))
	w.awaitIdle("p", many)
	never(t, 2*lag, "more pods than replicas", func() bool { return len(w.pods("p", "")) > many })
	if made, gone, most, _ := d.read(); made != many || gone != 0 || most != many {
		t.Errorf("up: %d pods made, %d deleted, %d at most; want %d, 0, %d", made, gone, most, many, many)
	}
	w.scaleTo(pool, 0)
	claimed := map[types.UID]string{}
	kubetest.Eventually(t, "no unclaimed pod", func() error {
		for range claims - len(claimed) {
			w.claimPicked("p", claimed)
		}
		if idle := w.pods("p", v1alpha1.PodIdle); len(idle) > 0 {
			return fmt.Errorf("%d idle, %d claimed", len(idle), len(claimed))
		}
		return nil
	})
	t.Logf("%d of %d pods were claimed while the controller deleted them", len(claimed), many)
	if len(claimed) == 0 {
		t.Fatal("all pods were gone before one was claimed")
	}
	never(t, 2*lag, "a pod is made for nobody", func() bool { return len(w.pods("p", "")) > len(claimed) })
	if made, gone, _, _ := d.read(); made != 0 || gone != many-len(claimed) {
		t.Errorf("down: %d pods made, %d deleted; want 0 and %d", made, gone, many-len(claimed))
	}
	w.scaleTo(pool, int32(again))
	w.awaitIdle("p", again)
	never(t, 2*lag, "more unclaimed pods than replicas", func() bool { return len(w.pods("p", "")) > again+len(claimed) })
	if made, gone, most, _ := d.read(); made != again || gone != 0 || most != again {
		t.Errorf("up again: %d pods made, %d deleted, %d unclaimed at most; want %d, 0, %d", made, gone, most, again, again)
	}
	if len(d.lostWhenClaimed) > 0 {
		t.Errorf("claimed pods were deleted: %v", d.lostWhenClaimed)
	}
	for uid, id := range claimed {
		if s := w.sandbox(id); s.Spec.End != nil {
			t.Errorf("sandbox %s in pod %s was ended: %+v", id, uid, s.Spec.End)
		}
	}
}

// TestRollout changes a pool's template: idle pods follow, the stock stays, and a
// claimed pod is left alone.
func TestRollout(t *testing.T) {
	w := newWorld(t)
	pool := w.pool("p", 8, 0)
	w.await("p", v1alpha1.PodIdle, 8)
	s, claimed := w.running("p")
	w.await("p", v1alpha1.PodIdle, 8)
	d := keepDiary(w)
	before := pool.DeepCopy()
	pool.Spec.Template.Template.Spec.Containers[0].Image = "local/next"
	if err := w.c.Patch(t.Context(), pool, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "8 idle pods of the new template", func() error {
		next, old := 0, 0
		for _, p := range w.pods("p", v1alpha1.PodIdle) {
			if p.Spec.Containers[0].Image == "local/next" {
				next++
			} else {
				old++
			}
		}
		if next != 8 || old != 0 {
			return fmt.Errorf("%d new, %d old", next, old)
		}
		return nil
	})
	if made, _, most, fewest := d.read(); made != 8 || most > 9 || fewest < 6 {
		t.Errorf("%d pods made, at most %d unclaimed, at least %d idle; want 8, 9, 6", made, most, fewest)
	}
	if got := w.sandbox(s.Name); got.Spec.End != nil || phaseOf(w.pod(claimed)) != v1alpha1.PodRunning {
		t.Errorf("the rollout touched a claimed pod: %+v", got.Spec.End)
	}
}

// TestRolloutOfABrokenTemplate costs a handful of pods and none of the stock, and
// is mended by the next change.
func TestRolloutOfABrokenTemplate(t *testing.T) {
	w := newWorld(t)
	w.node.use(func(p *corev1.Pod) string {
		if p.Spec.Containers[0].Image == "local/broken" {
			return ""
		}
		return newAddress()
	})
	pool := w.pool("p", 4, 0, func(p *v1alpha1.SandboxPool) { p.Spec.StartupTimeout = &metav1.Duration{Duration: time.Second} })
	w.await("p", v1alpha1.PodIdle, 4)
	d := keepDiary(w)
	image := func(to string) {
		t.Helper()
		before := pool.DeepCopy()
		pool.Spec.Template.Template.Spec.Containers[0].Image = to
		if err := w.c.Patch(t.Context(), pool, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	image("local/broken")
	kubetest.Eventually(t, "a degraded pool", func() error {
		if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(pool.Status.Conditions, v1alpha1.PoolConditionDegraded) {
			return errors.New("not yet")
		}
		return nil
	})
	never(t, 6*time.Second, "the stock shrinks", func() bool { return len(w.pods("p", v1alpha1.PodIdle)) < 4 })
	if made, _, _, _ := d.read(); made > 6 {
		t.Errorf("%d pods of a broken template", made)
	}
	image("local/mended")
	kubetest.Eventually(t, "4 idle pods of the mended template", func() error {
		n := 0
		for _, p := range w.pods("p", v1alpha1.PodIdle) {
			if p.Spec.Containers[0].Image == "local/mended" {
				n++
			}
		}
		if n != 4 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
}
