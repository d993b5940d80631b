package reconcilers_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// A ResourceQuota that is tighter than maxPods is what the pool's conditions and Events
// blame, and its refusals do not count as failures of the platform.
func TestPoolAtItsQuota(t *testing.T) {
	reg := prometheus.NewRegistry()
	w := newWorld(t, func(w *world) { w.options.Registerer = reg })
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "tenant"}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")}
	if err := w.c.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	// The API server counts on from here; no kube-controller-manager runs that would begin.
	quota.Status.Hard = quota.Spec.Hard
	quota.Status.Used = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
	if err := w.c.Status().Update(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	pool := w.pool("p", 8, 5)
	w.await("p", v1alpha1.PodIdle, 2)
	w.running("p")
	w.running("p")
	labels := "namespace=" + w.ns
	kubetest.Eventually(t, "a pool at its quota", func() error {
		if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
			return err
		}
		for _, kind := range []string{v1alpha1.PoolConditionAvailable, v1alpha1.PoolConditionScaling} {
			if c := meta.FindStatusCondition(pool.Status.Conditions, kind); c == nil || c.Status != metav1.ConditionFalse || c.Reason != "QuotaExceeded" {
				return fmt.Errorf("condition %+v", c)
			}
		}
		got := series(t, reg)
		failed, ok := got["sandboxpool_pod_creates_total{"+labels+",outcome=failed,pool=p}"]
		refused, bound := got["sandboxpool_pod_creates_total{"+labels+",outcome=quota,pool=p}"], got["sandboxpool_at_bound{"+labels+",pool=p}"]
		if !ok || failed != 0 || refused == 0 || bound != 1 {
			return fmt.Errorf("%v failed, %v refused by a quota, at a bound: %v", failed, refused, bound)
		}
		return nil
	})
	kubetest.Eventually(t, "an Event for the tenant", func() error {
		var list eventsv1.EventList
		if err := w.c.List(t.Context(), &list, client.InNamespace(w.ns)); err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return e.Reason == "CreateFailed" && e.Regarding.Name == "p" }) {
			return fmt.Errorf("%d Events", len(list.Items))
		}
		return nil
	})
}
