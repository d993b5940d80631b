package sandboxenv

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/sandboxenv/poolrender"
)

// A member's pool:
//
//	state         what is so                              what the reconciler does
//	missing       no pool of that name                    makes it, owned by the env
//	own           the env is its controller, and made it  patches what differs
//	              for this cluster or for one that it
//	              names no more
//	adopted       it was there before, and owns the env   nothing: the pool is the truth
//	foreign       a pool of another env or cluster, or    nothing; the member is Inconsistent
//	              of none
//	draining      own, and the env has no such member     gives it no replicas and the mark draining;
//	                                                      deletes it once it has no pod at all
//	unlisted      own, and the env has no entry for this  nothing; the member is Inconsistent
//	              cluster
//
// The UID and resourceVersion of the pool that was read are preconditions of every
// write. A conflict means that the cache was behind: the env is looked at again, and
// its status is not written from what was read. A step that fails is done again by the
// next look, 12 s later at the latest: each look begins from the objects alone. All that is
// remembered between two is which versions of them needed no write (inline.go).

// memberView is what one reconcile saw of one member.
type memberView struct {
	name  string
	state v1alpha1.MemberState
	// pool is nil where there is none of the env's.
	pool *v1alpha1.SandboxPool
	// attempt is the answer to a refused write; message says more of the state.
	attempt, message string
}

// refusal is an answer that stays until a person changes something: a plugin's no, or
// the API server's to what was written.
type refusal struct{ message string }

func (e *refusal) Error() string { return e.message }

// materialise makes or mends the pool of a member. A refusal is in the memberView and is no
// error: to try again at once would change nothing.
func (r *SandboxEnvReconciler) materialise(ctx context.Context, env *v1alpha1.SandboxEnv, member v1alpha1.EnvMember, template *v1alpha1.SandboxTemplate) (memberView, error) {
	s := memberView{name: member.Name, state: v1alpha1.MemberMissing}
	pool := &v1alpha1.SandboxPool{} // the cache's: it must not be changed
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: env.Namespace, Name: member.Name}, pool, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		s.pool, err = r.create(ctx, env, member, template)
	case err != nil:
		return s, fmt.Errorf("reading pool %s: %w", member.Name, err)
	case pool.DeletionTimestamp != nil:
		s.message = "the pool is being deleted, and is made anew when it is gone"
		return s, nil
	case IsAdopted(pool, env):
		s.pool, s.state = pool, v1alpha1.MemberActive
		return s, nil
	case !metav1.IsControlledBy(pool, env):
		s.state, s.message = v1alpha1.MemberInconsistent, foreign(pool)
		return s, nil
	case clusterOf(pool) != "" && !r.isOurs(pool, env):
		s.state, s.message = v1alpha1.MemberInconsistent, "the pool of that name is the env's for the cluster "+clusterOf(pool)
		return s, nil
	default:
		s.pool = pool
		var next *v1alpha1.SandboxPool
		if next, err = r.update(ctx, env, pool, member, template); next != nil {
			s.pool = next
		}
	}
	var no *refusal
	switch {
	case errors.Is(err, poolrender.ErrNoTemplate):
		s.message = noTemplate(env)
		return s, nil
	case errors.As(err, &no):
		if s.attempt, s.message = no.message, "the pool could not be made"; s.pool != nil {
			s.state, s.message = v1alpha1.MemberInconsistent, "the pool could not be brought in line with the env"
		}
		return s, nil
	case err != nil:
		return s, err
	}
	if s.state = v1alpha1.MemberActive; template == nil {
		s.state, s.message = v1alpha1.MemberInconsistent, noTemplate(env)
	}
	return s, nil
}

func noTemplate(env *v1alpha1.SandboxEnv) string {
	return "there is no SandboxTemplate " + env.Spec.TemplateRef.Name
}

// IsAdopted reports whether the env was made for the pool, which was there before: then
// the pool owns the env, and the env's member only mirrors it.
func IsAdopted(pool *v1alpha1.SandboxPool, env *v1alpha1.SandboxEnv) bool {
	return pool.Annotations[v1alpha1.AnnotationAdopted] == string(env.UID) && env.UID != "" && metav1.GetControllerOf(pool) == nil
}

// clusterOf is the ID of the cluster whose entry of its env the pool is of.
func clusterOf(pool *v1alpha1.SandboxPool) string {
	return pool.Annotations[v1alpha1.AnnotationCluster]
}

// isOurs reports whether a pool of the env is this controller's to keep or to drain: it was
// made for this cluster, or for one that the env names no more, as when a controller's
// cluster ID was changed.
func (r *SandboxEnvReconciler) isOurs(pool *v1alpha1.SandboxPool, env *v1alpha1.SandboxEnv) bool {
	of := clusterOf(pool)
	return of == r.LocalClusterID || of != "" && !env.Spec.HasCluster(of)
}

// foreign returns the message that says whose a pool is.
func foreign(pool *v1alpha1.SandboxPool) string {
	if owner := metav1.GetControllerOf(pool); owner != nil {
		return fmt.Sprintf("the pool of that name belongs to %s %s", owner.Kind, owner.Name)
	}
	return "there is a pool of that name, which is not this env's: delete it, or rename the member"
}

func (r *SandboxEnvReconciler) create(ctx context.Context, env *v1alpha1.SandboxEnv, member v1alpha1.EnvMember, template *v1alpha1.SandboxTemplate) (*v1alpha1.SandboxPool, error) {
	pool, err := poolrender.Render(env, member, template)
	if err != nil {
		return nil, err
	}
	metav1.SetMetaDataAnnotation(&pool.ObjectMeta, v1alpha1.AnnotationCluster, r.LocalClusterID)
	if r.PluginManager != nil {
		if err := r.PluginManager.PreCreatePool(ctx, pool); err != nil {
			return nil, r.refused(env, member.Name, err)
		}
	}
	err = r.Client.Create(ctx, pool)
	switch {
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		return nil, r.refused(env, member.Name, err)
	case err != nil: // it exists already: the cache is behind
		return nil, fmt.Errorf("making pool %s: %w", member.Name, err)
	}
	r.event(env, member.Name, corev1.EventTypeNormal, "PoolCreated", "made pool %s", member.Name)
	r.Metrics.wrote("create")
	return pool, nil
}

// update writes what differs between the pool and what env and member say, and
// nothing if nothing does. It returns the pool as it is then; nil with an error.
func (r *SandboxEnvReconciler) update(ctx context.Context, env *v1alpha1.SandboxEnv, pool *v1alpha1.SandboxPool, member v1alpha1.EnvMember, template *v1alpha1.SandboxTemplate) (*v1alpha1.SandboxPool, error) {
	key, seen := client.ObjectKeyFromObject(env), versions{env: env.ResourceVersion, pool: pool.ResourceVersion}
	if template != nil {
		seen.template = template.ResourceVersion
	}
	if r.settled.has(key, member.Name, seen) {
		return pool, nil
	}
	next := poolrender.Stamp(pool, env, member, template)
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1alpha1.AnnotationCluster, r.LocalClusterID)
	if equality.Semantic.DeepEqual(pool, next) {
		r.settled.keep(key, member.Name, seen)
		return pool, nil
	}
	if r.PluginManager != nil {
		if err := r.PluginManager.PreUpdatePool(ctx, pool.DeepCopy(), next); err != nil {
			return nil, r.refused(env, member.Name, err)
		}
		if equality.Semantic.DeepEqual(pool, next) {
			return pool, nil // what differs is what the plugin changes each time
		}
	}
	switch err := r.patch(ctx, pool, next); {
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		return nil, r.refused(env, member.Name, err)
	case err != nil:
		return nil, err
	}
	// The env has not changed since the last reconcile: so the pool was changed.
	if was := pool.Spec.Replicas; was != next.Spec.Replicas && env.Status.ObservedGeneration == env.Generation {
		r.event(env, member.Name, corev1.EventTypeWarning, "PoolUpdated", "gave pool %s its %d replicas back; it had %d. Change members[].spec.replicas of the env, not the pool",
			member.Name, next.Spec.Replicas, was)
	} else {
		r.event(env, member.Name, corev1.EventTypeNormal, "PoolUpdated", "brought pool %s in line with the env", member.Name)
	}
	return next, nil
}

// patch writes the difference, testing the version that was read.
func (r *SandboxEnvReconciler) patch(ctx context.Context, pool, next *v1alpha1.SandboxPool) error {
	err := r.Client.Patch(ctx, next, client.MergeFromWithOptions(pool, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("writing pool %s: %w", pool.Name, err)
	}
	r.Metrics.wrote("update")
	return nil
}

// refused makes an error a refusal. Its Event is sent once, not at each reconcile.
func (r *SandboxEnvReconciler) refused(env *v1alpha1.SandboxEnv, member string, err error) error {
	no := &refusal{err.Error()}
	if lastAttempt(env, r.LocalClusterID, member) != no.message {
		r.event(env, member, corev1.EventTypeWarning, "PoolRefused", "pool %s: %s", member, no.message)
	}
	r.Metrics.wrote("refused")
	return no
}

// event records what a person would want to know of a pool of the env. The pool is
// named as related: Events of one reason that are about different pools are not one.
func (r *SandboxEnvReconciler) event(env *v1alpha1.SandboxEnv, pool, kind, reason, note string, args ...any) {
	if r.Recorder != nil {
		related := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace, Name: pool}}
		r.Recorder.Eventf(env.DeepCopy(), related, kind, reason, "Reconcile", note, args...)
	}
}
