package sandboxenv

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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
// it has seen the mark and has no pods left: the condition Available has the reason
// Drained, for the pool's generation.
//
// Deleting an env deletes its own pools by garbage collection, and with them their
// sandboxes, as deleting a pool does. An env that is being deleted gets no pools.

// drain takes a pool that is no member any more one step further: no claims and no
// idle pods, then, when it has no pod left, its end. Deleting it at once would end its
// running sandboxes.
func (r *SandboxEnvReconciler) drain(ctx context.Context, env *v1alpha1.SandboxEnv, pool *v1alpha1.SandboxPool) (memberView, error) {
	s := memberView{name: pool.Name, state: v1alpha1.MemberDraining, pool: pool}
	if pool.DeletionTimestamp != nil {
		s.message = "the pool is being deleted"
		return s, nil
	}
	if _, marked := pool.Annotations[v1alpha1.AnnotationDraining]; !marked || pool.Spec.Replicas != 0 {
		next := pool.DeepCopy()
		next.Spec.Replicas = 0
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1alpha1.AnnotationDraining, "true")
		if err := r.patch(ctx, pool, next); err != nil {
			return s, err
		}
		s.pool = next
		if !marked {
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

// drained: the pool's own reconciler has seen the mark, and the pool has no pods.
func drained(pool *v1alpha1.SandboxPool) bool {
	c := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.PoolConditionAvailable)
	return c != nil && c.Reason == v1alpha1.PoolReasonDrained && c.ObservedGeneration == pool.Generation && pool.Status.ObservedGeneration == pool.Generation
}
