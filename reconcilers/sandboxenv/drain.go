package sandboxenv

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Draining:
//
// Deleting a pool ends its sandboxes, so a member's pool is deleted only when it has no
// pods. Gateways claim nothing from a pool with the mark. A claim that was on its way
// lands on a pod that exists, or not at all, since the pool with the mark makes none. Only
// the pool's own reconciler knows which pods it has made and not seen yet. So it says when
// it has seen this mark and has no pods left, in status.drained. What it said of an earlier
// mark or an earlier spec does not count: the pool may have made pods since.
//
// A controller whose cluster the env does not name drains nothing: its entry may have been
// renamed before the controller has got its new ID. TemplateConsistent says so.
//
// Deleting an env deletes its own pools by garbage collection, and with them their
// sandboxes, as deleting a pool does. An env that is being deleted gets no pools.

func noEntry(clusterID string) string {
	return fmt.Sprintf("spec.clusters has no entry for %s, the cluster of this pool: it stays as it is", clusterID)
}

// drain takes a pool that is no member any more one step further: no claims and no
// idle pods, then, when it has no pod left, its end. Deleting it at once would end its
// running sandboxes.
func (r *SandboxEnvReconciler) drain(ctx context.Context, env *v1alpha1.SandboxEnv, pool *v1alpha1.SandboxPool) (memberView, error) {
	s := memberView{name: pool.Name, state: v1alpha1.MemberDraining, pool: pool}
	if pool.DeletionTimestamp != nil {
		s.message = "the pool is being deleted"
		return s, nil
	}
	if mark := pool.Annotations[v1alpha1.AnnotationDraining]; mark == "" || pool.Spec.Replicas != 0 {
		next := pool.DeepCopy()
		next.Spec.Replicas = 0
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1alpha1.AnnotationDraining, r.now().UTC().Format(time.RFC3339Nano))
		if err := r.patch(ctx, pool, next); err != nil {
			return s, err
		}
		s.pool = next
		if mark == "" {
			r.event(env, pool.Name, corev1.EventTypeNormal, "PoolDraining", "pool %s is no member any more: it takes no claims, and goes with its last sandbox", pool.Name)
		}
		return s, nil
	}
	if !drained(pool) {
		s.message = "waits for its last pod"
		return s, nil
	}
	err := r.Client.Delete(ctx, pool, client.Preconditions{UID: &pool.UID, ResourceVersion: ptr.To(pool.ResourceVersion)})
	if client.IgnoreNotFound(err) != nil {
		return s, fmt.Errorf("deleting pool %s: %w", pool.Name, err)
	}
	s.message = "the pool is being deleted"
	r.event(env, pool.Name, corev1.EventTypeNormal, "PoolDeleted", "deleted pool %s, which is no member any more", pool.Name)
	r.Metrics.wrote("delete")
	return s, nil
}

// drained: the pool's own reconciler has seen the mark and the spec, and the pool has no pods.
func drained(pool *v1alpha1.SandboxPool) bool {
	s := &pool.Status
	return s.Drained != "" && s.Drained == pool.Annotations[v1alpha1.AnnotationDraining] && s.ObservedGeneration == pool.Generation
}
