package autoscaler

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// indexIdle is the field index of idle pods by the name of their pool.
const indexIdle = "idleOfPool"

// SetupWithManager registers the reconciler and its index. Call it once per manager,
// before the manager starts. It fails without a LocalClusterID.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	if r.LocalClusterID == "" {
		return errors.New("the autoscaler needs the ID of its cluster (--cluster-id)")
	}
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, indexIdle, idleOf) // registering an index needs no context
	if err != nil {
		return fmt.Errorf("indexing idle pods by pool: %w", err)
	}
	if opts.MaxConcurrentReconciles == 0 {
		opts.MaxConcurrentReconciles = 2
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("autoscaler").
		For(&v1alpha1.SandboxEnv{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.SandboxPool{}, handler.EnqueueRequestsFromMapFunc(envOfPool)).
		WithOptions(opts).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the autoscaler: %w", err)
	}
	return nil
}

// idleOf is the pool of an idle pod.
func idleOf(o client.Object) []string {
	if pod := o.(*corev1.Pod); v1alpha1.PhaseOf(pod) == v1alpha1.PodIdle {
		return []string{pod.Labels[v1alpha1.LabelPool]}
	}
	return nil
}

// envOfPool is the env that made the pool.
func envOfPool(_ context.Context, o client.Object) []reconcile.Request {
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == "SandboxEnv" {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}}}
	}
	return nil
}
