package builds

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// unusedFor is how long a template may be asked for no sandbox before none waits for the next.
const unusedFor = 24 * time.Hour

// ready gives the pool of a Ready build a pod while the template is used, and deletes a build that
// no tag names any more with its last sandbox.
func (r *Reconciler) ready(ctx context.Context, b *v1alpha1.TemplateBuild) (ctrl.Result, error) {
	pool := &v1alpha1.SandboxPool{}
	if err := r.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: v1alpha1.TemplatePool(b.Name)}, pool); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	others, err := r.others(ctx, b)
	if err != nil {
		return ctrl.Result{}, err
	}
	tagged := false
	for _, holder := range v1alpha1.TagHolders(append(others, *b)) {
		tagged = tagged || holder.Name == b.Name
	}
	want, after := stock(pool, b, tagged, r.Clock.Now())
	if want != pool.Spec.Replicas {
		before := pool.DeepCopy()
		pool.Spec.Replicas = want
		if want == 0 {
			metav1.SetMetaDataAnnotation(&pool.ObjectMeta, v1alpha1.AnnotationUnused, "true")
		} else {
			delete(pool.Annotations, v1alpha1.AnnotationUnused)
		}
		if err := r.Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return ctrl.Result{}, fmt.Errorf("scaling the pool %s: %w", pool.Name, err)
		}
		return ctrl.Result{RequeueAfter: poll}, nil
	}
	if tagged {
		return ctrl.Result{RequeueAfter: after}, nil
	}
	used, err := r.used(ctx, pool)
	if err != nil || used {
		return ctrl.Result{RequeueAfter: poll}, err
	}
	err = r.Delete(ctx, b, client.Preconditions{UID: &b.UID, ResourceVersion: &b.ResourceVersion})
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// stock is how many pods of a template's pool wait for sandboxes, and when that may change. What a
// user has scaled, to more or to none, as an uninstallation does, stays as long as a tag names the
// build.
func stock(pool *v1alpha1.SandboxPool, b *v1alpha1.TemplateBuild, tagged bool, now time.Time) (replicas int32, after time.Duration) {
	if !tagged {
		return 0, 0
	}
	_, unused := pool.Annotations[v1alpha1.AnnotationUnused]
	if pool.Spec.Replicas > 1 || pool.Spec.Replicas == 0 && !unused {
		return pool.Spec.Replicas, 0
	}
	last := b.CreationTimestamp.Time
	if b.Status.PhaseAt != nil {
		last = b.Status.PhaseAt.Time
	}
	if asked, err := time.Parse(time.RFC3339Nano, pool.Annotations[v1alpha1.AnnotationLastCreate]); err == nil && asked.After(last) {
		last = asked
	}
	if after = last.Add(unusedFor).Sub(now); after <= 0 {
		return 0, 0
	}
	return 1, after
}

// used reports whether a pool has a pod, a sandbox, or the kept files of one.
func (r *Reconciler) used(ctx context.Context, pool *v1alpha1.SandboxPool) (bool, error) {
	s := &pool.Status
	if s.ObservedGeneration < pool.Generation || s.Warming+s.Idle+s.Starting+s.Running+s.Stopping+s.WaitingClaims > 0 {
		return true, nil
	}
	var sandboxes v1alpha1.SandboxList
	if err := r.List(ctx, &sandboxes); err != nil {
		return true, fmt.Errorf("listing the sandboxes of the pool %s: %w", pool.Name, err)
	}
	for i := range sandboxes.Items {
		if one := &sandboxes.Items[i].Spec; one.Namespace == pool.Namespace && one.Pool == pool.Name && one.End == nil {
			return true, nil
		}
	}
	if !r.Checkpoints {
		return false, nil
	}
	var kept v1alpha1.CheckpointList
	if err := r.List(ctx, &kept, client.InNamespace(pool.Namespace)); err != nil {
		return true, fmt.Errorf("listing the snapshots of the pool %s: %w", pool.Name, err)
	}
	for i := range kept.Items {
		if kept.Items[i].Status.Pool == pool.Name {
			return true, nil
		}
	}
	return false, nil
}
