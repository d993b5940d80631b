package reconcilers_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/test/kubetest"
)

// demand is what the test's gateways say waits, and what wakes the pools where that
// changes.
type demand struct {
	mu      sync.Mutex
	ids     map[string]bool
	unknown bool
	woken   chan event.GenericEvent
}

func (w *world) demand() *demand {
	d := &demand{ids: map[string]bool{}, woken: make(chan event.GenericEvent, 1000)}
	w.options.Demand, w.options.DemandChanged = d, d.woken
	return d
}

func (d *demand) Soon() {}

func (d *demand) Waiting(types.NamespacedName) (map[uint64]time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := map[uint64]time.Time{}
	for id := range d.ids {
		ids[schedule.HashID(id)] = time.Now()
	}
	return ids, !d.unknown
}

// change changes what waits, and wakes the pool.
func (d *demand) change(pool *v1alpha1.SandboxPool, how func(*demand)) {
	d.mu.Lock()
	how(d)
	d.mu.Unlock()
	d.woken <- event.GenericEvent{Object: pool.DeepCopy()} // the test goes on with pool
}

// TestPoolServesWaitingClaims: a pool without replicas makes a pod for each claim that
// waits and no other, tells how many wait, and is empty again when they have ended.
func TestPoolServesWaitingClaims(t *testing.T) {
	for _, replicas := range []int32{0, 2} {
		t.Run(fmt.Sprint("replicas=", replicas), func(t *testing.T) {
			var waits *demand
			w := newWorld(t, func(w *world) { waits = w.demand() })
			d := keepDiary(w)
			pool := w.pool("p", replicas, 0)
			w.await("p", v1alpha1.PodIdle, int(replicas))
			const n = 20
			names := make([]string, n)
			waits.change(pool, func(d *demand) {
				for i := range names {
					names[i] = kubetest.Name("s")
					d.ids[names[i]] = true
				}
			})
			kubetest.Eventually(t, "the status to say what waits", func() error {
				if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
					return err
				}
				if pool.Status.WaitingClaims == 0 {
					return fmt.Errorf("%d", pool.Status.WaitingClaims)
				}
				return nil
			})
			for _, name := range names {
				kubetest.Eventually(t, "an idle pod", func() error {
					idle := w.pods("p", v1alpha1.PodIdle)
					if len(idle) == 0 {
						return fmt.Errorf("%d pods in all", len(w.pods("p", "")))
					}
					s := w.newSandbox("p", &idle[0], func(s *v1alpha1.Sandbox) { s.Name = name })
					return w.c.Patch(t.Context(), &idle[0], claimPatch(s, v1alpha1.PodRunning).Build())
				})
				// Its gateway tells of it a moment later: the pool has seen the claim by then, or not.
				waits.change(pool, func(d *demand) { delete(d.ids, name) })
			}
			w.await("p", v1alpha1.PodRunning, n)
			w.await("p", v1alpha1.PodIdle, int(replicas))
			kubetest.Eventually(t, "the status to say that none waits", func() error {
				if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
					return err
				}
				if pool.Status.WaitingClaims != 0 {
					return fmt.Errorf("%d", pool.Status.WaitingClaims)
				}
				return nil
			})
			if made, gone, _, _ := d.read(); made > n+int(replicas) || gone != 0 {
				t.Errorf("%d pods made, %d deleted, for %d that waited and %d replicas", made, gone, n, replicas)
			}
		})
	}
}

// TestPoolKeepsItsStockWhileDemandIsUnknown: the controller does not know what waits at a
// gateway that is silent.
func TestPoolKeepsItsStockWhileDemandIsUnknown(t *testing.T) {
	var waits *demand
	w := newWorld(t, func(w *world) { waits = w.demand(); waits.unknown = true })
	pool := w.pool("p", 3, 0, func(p *v1alpha1.SandboxPool) { p.Spec.ScaleDownProtection = &metav1.Duration{} })
	w.await("p", v1alpha1.PodIdle, 3)
	w.scaleTo(pool, 1)
	never(t, 5*time.Second, "the stock shrinks", func() bool { return len(w.pods("p", v1alpha1.PodIdle)) < 3 })
	waits.change(pool, func(d *demand) { d.unknown = false })
	w.await("p", v1alpha1.PodIdle, 1)
}

// TestNoteOfWaitingClaimsIsTakenAway: gateways write it, and it goes once none of them
// says that something waits.
func TestNoteOfWaitingClaimsIsTakenAway(t *testing.T) {
	w := newWorld(t, func(w *world) { w.demand() })
	pool := w.pool("p", 0, 0)
	before := pool.DeepCopy()
	pool.Annotations = map[string]string{v1alpha1.AnnotationScaleUpPending: time.Now().UTC().Format(time.RFC3339Nano)}
	if err := w.c.Patch(t.Context(), pool, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the note to go", func() error {
		if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
			return err
		}
		if note, has := pool.Annotations[v1alpha1.AnnotationScaleUpPending]; has {
			return fmt.Errorf("%s", note)
		}
		return nil
	})
}

// TestScaleDownProtectionIsValidated by the API server.
func TestScaleDownProtectionIsValidated(t *testing.T) {
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	for value, ok := range map[string]bool{`"0s"`: true, `"2s"`: true, `"1h30m"`: true, `"-1s"`: false, `"soon"`: false} {
		pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: kubetest.Name("p")}}
		pool.Spec.TemplateRef = &v1alpha1.TemplateRef{Name: "t"}
		if err := c.Create(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		patch := []byte(`{"spec":{"scaleDownProtection":` + value + `}}`)
		if err := c.Patch(t.Context(), pool, client.RawPatch(types.MergePatchType, patch)); (err == nil) != ok {
			t.Errorf("%s: %v", value, err)
		}
	}
}
