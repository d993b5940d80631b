package poolmigration

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// PoolAdoptionReconciler makes envs for pools. Set the fields, then call
// SetupWithManager once.
type PoolAdoptionReconciler struct {
	// Client reads from the manager's cache and writes to the API server.
	Client client.Client
	// LocalClusterID is the cluster ID under which the env names the pool. Needed.
	LocalClusterID string
	// Recorder is nil for no Events.
	Recorder events.EventRecorder
}

// SetupWithManager registers the reconciler. Call it once per manager, before the
// manager starts.
func (r *PoolAdoptionReconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	if r.LocalClusterID == "" {
		return errors.New("adopting pools needs the ID of the cluster (--cluster-id)")
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("pooladoption").
		For(&v1alpha1.SandboxPool{}, builder.WithPredicates(predicate.Or[client.Object](
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&v1alpha1.SandboxEnv{}, handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.SandboxPool{}, handler.OnlyControllerOwner()),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(opts).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the adoption of pools: %w", err)
	}
	return nil
}

// Reconcile takes a pool one step further on its way to an env. A conflict is an error,
// and is tried again.
func (r *PoolAdoptionReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pool := &v1alpha1.SandboxPool{}
	if err := r.Client.Get(ctx, req.NamespacedName, pool); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !adoptable(pool) {
		return ctrl.Result{}, nil
	}
	noted := pool.Annotations[v1alpha1.AnnotationAdopted]
	env := &v1alpha1.SandboxEnv{}
	err := r.Client.Get(ctx, req.NamespacedName, env)
	switch {
	case apierrors.IsNotFound(err) && noted == "":
		if env, err = r.create(ctx, pool); err != nil {
			return ctrl.Result{}, err
		}
		failpoint.Hit("poolmigration/made") // the env is there, the pool does not say so
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading the env: %w", err)
	}
	if !metav1.IsControlledBy(env, pool) || env.DeletionTimestamp != nil || noted != "" && noted != string(env.UID) {
		return ctrl.Result{}, nil
	}
	if noted == "" {
		if err := r.note(ctx, pool, env); err != nil {
			return ctrl.Result{}, err
		}
		failpoint.Hit("poolmigration/noted") // adopted, and no Event
		if r.Recorder != nil {
			r.Recorder.Eventf(env, pool, corev1.EventTypeNormal, "Adopted", "Adopt", "mirrors pool %s, which was there before", pool.Name)
		}
	}
	return ctrl.Result{}, r.mirror(ctx, pool, env)
}

// adoptable: an env can mirror the pool, and none has made it.
func adoptable(pool *v1alpha1.SandboxPool) bool {
	return pool.DeletionTimestamp == nil && metav1.GetControllerOf(pool) == nil && pool.Spec.TemplateRef != nil &&
		len(validation.IsDNS1123Label(pool.Name)) == 0
}

func (r *PoolAdoptionReconciler) create(ctx context.Context, pool *v1alpha1.SandboxPool) (*v1alpha1.SandboxEnv, error) {
	owner := *metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind("SandboxPool"))
	owner.BlockOwnerDeletion = nil // the pool need not wait for the env
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: pool.Name, OwnerReferences: []metav1.OwnerReference{owner}}}
	reflectPool(env, pool, r.LocalClusterID)
	if err := r.Client.Create(ctx, env); err != nil {
		return nil, fmt.Errorf("making an env for the pool: %w", err)
	}
	return env, nil
}

// note writes the env's UID to the pool, unless another is there.
func (r *PoolAdoptionReconciler) note(ctx context.Context, pool *v1alpha1.SandboxPool, env *v1alpha1.SandboxEnv) error {
	p := writes.For(pool.UID).Test("/metadata/deletionTimestamp", nil)
	if pool.Annotations == nil {
		p = p.Test("/metadata/annotations", nil).Set("/metadata/annotations", map[string]string{v1alpha1.AnnotationAdopted: string(env.UID)})
	} else {
		path := writes.Annotation(v1alpha1.AnnotationAdopted)
		p = p.Test(path, nil).Set(path, string(env.UID))
	}
	if err := r.Client.Patch(ctx, pool.DeepCopy(), p.Build()); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("noting the env on the pool: %w", err)
	}
	return nil
}

// mirror writes what of the env differs from the pool.
func (r *PoolAdoptionReconciler) mirror(ctx context.Context, pool *v1alpha1.SandboxPool, env *v1alpha1.SandboxEnv) error {
	next := env.DeepCopy()
	reflectPool(next, pool, r.LocalClusterID)
	if equality.Semantic.DeepEqual(env.Spec, next.Spec) {
		return nil
	}
	err := r.Client.Patch(ctx, next, client.MergeFromWithOptions(env, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("mirroring the pool in its env: %w", err)
	}
	return nil
}

// reflectPool makes the env's entry of the cluster say what the pool is. The member's
// config, and what else the env says, stay.
func reflectPool(env *v1alpha1.SandboxEnv, pool *v1alpha1.SandboxPool, clusterID string) {
	s := pool.Spec.DeepCopy()
	env.Spec.TemplateRef, env.Spec.FirstRequest = *s.TemplateRef, s.FirstRequest
	i := slices.IndexFunc(env.Spec.Clusters, func(c v1alpha1.EnvCluster) bool { return c.ClusterID == clusterID })
	if i < 0 {
		env.Spec.Clusters = append(env.Spec.Clusters, v1alpha1.EnvCluster{ClusterID: clusterID})
		i = len(env.Spec.Clusters) - 1
	}
	member := v1alpha1.EnvMember{Name: pool.Name, Config: v1alpha1.EnvMemberConfig{ScalingGroup: "default"}}
	for _, m := range env.Spec.Clusters[i].Members {
		if m.Name == pool.Name {
			member = m
		}
	}
	member.Spec = v1alpha1.EnvMemberSpec{
		Replicas: ptr.To(s.Replicas), MaxPods: s.MaxPods, PodCreationImagePolicy: s.PodCreationImagePolicy, RecyclePolicy: s.RecyclePolicy, Egress: s.Egress,
		StartupTimeout: s.StartupTimeout, IdleTimeout: s.IdleTimeout, ScaleDownProtection: s.ScaleDownProtection,
		Pause: s.Pause,
	}
	env.Spec.Clusters[i].Members = []v1alpha1.EnvMember{member}
}
