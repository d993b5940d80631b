package sandboxenv

import (
	"context"
	"errors"
	"fmt"

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

// Field indexes of the manager's cache.
const (
	// indexOwner is of pools: the name of the env that is their controller.
	indexOwner = "ownerEnv"
	// indexMember is of envs: the names of their local members.
	indexMember = "localMember"
	// indexTemplate is of envs: the name of their template.
	indexTemplate = "envTemplate"
)

// SetupWithManager registers the reconciler and its indexes. Call it once per
// manager, before the manager starts. It fails without a LocalClusterID: a controller
// that does not know which entry is its own must not write any.
func (r *SandboxEnvReconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	if r.LocalClusterID == "" {
		return errors.New("the env reconciler needs the ID of its cluster (--cluster-id)")
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("sandboxenv")
	}
	if err := r.addIndexes(mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if opts.MaxConcurrentReconciles == 0 {
		opts.MaxConcurrentReconciles = 2
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("sandboxenv").
		For(&v1alpha1.SandboxEnv{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.SandboxPool{}, handler.EnqueueRequestsFromMapFunc(r.envsOfPool)).
		Watches(&v1alpha1.SandboxTemplate{}, handler.EnqueueRequestsFromMapFunc(r.envsOfTemplate)).
		WithOptions(opts).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the sandboxenv controller: %w", err)
	}
	return nil
}

func (r *SandboxEnvReconciler) addIndexes(indexer client.FieldIndexer) error {
	ctx := context.Background() // registering an index needs none
	return errors.Join(
		indexer.IndexField(ctx, &v1alpha1.SandboxPool{}, indexOwner, ownerEnv),
		indexer.IndexField(ctx, &v1alpha1.SandboxEnv{}, indexMember, func(o client.Object) []string {
			var names []string
			for _, m := range MembersOf(o.(*v1alpha1.SandboxEnv), r.LocalClusterID) {
				names = append(names, m.Name)
			}
			return names
		}),
		indexer.IndexField(ctx, &v1alpha1.SandboxEnv{}, indexTemplate, func(o client.Object) []string {
			return []string{o.(*v1alpha1.SandboxEnv).Spec.TemplateRef.Name}
		}),
	)
}

// ownerEnv is the name of the env that is a pool's controller.
func ownerEnv(o client.Object) []string {
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == "SandboxEnv" {
		return []string{owner.Name}
	}
	return nil
}

// envsOfPool asks for the env that controls a pool, and for each env that has a
// member of its name: that one may have waited for the name to be free.
func (r *SandboxEnvReconciler) envsOfPool(ctx context.Context, o client.Object) []reconcile.Request {
	requests := r.envsWith(ctx, indexMember, o.GetName(), client.InNamespace(o.GetNamespace()))
	for _, owner := range ownerEnv(o) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: owner}})
	}
	return requests
}

func (r *SandboxEnvReconciler) envsOfTemplate(ctx context.Context, o client.Object) []reconcile.Request {
	return r.envsWith(ctx, indexTemplate, o.GetName())
}

func (r *SandboxEnvReconciler) envsWith(ctx context.Context, index, value string, opts ...client.ListOption) []reconcile.Request {
	var envs v1alpha1.SandboxEnvList
	if err := r.Client.List(ctx, &envs, append(opts, client.MatchingFields{index: value}, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil // the envs' resync finds it
	}
	requests := make([]reconcile.Request, 0, len(envs.Items))
	for i := range envs.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&envs.Items[i])})
	}
	return requests
}
