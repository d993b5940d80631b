package sandboxpool

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/address"
)

const (
	// IndexPool is the field index of pods by pool name.
	IndexPool = "pool"
	// indexTemplate is the field index of pools by templateRef.
	indexTemplate = "template"
)

// SetupWithManager registers the reconciler, its indexes and those of package
// address. Call it once per manager, before the manager starts. The pods in the
// manager's cache must be all pool pods of the cluster.
func (r *SandboxPoolReconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	r.expectations = NewPoolExpectations(r.Clock)
	r.backoff = newCreationBackoff(r.now)
	r.running.runs = map[types.UID]*hookRun{}
	r.rule = &address.Rule{Cache: mgr.GetCache(), Ledger: r.Ledger, Clock: r.Clock}
	ctx := context.Background() // registering an index needs none
	if err := address.AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, IndexPool, func(o client.Object) []string {
		return nonEmpty(o.GetLabels()[v1alpha1.LabelPool])
	}); err != nil {
		return fmt.Errorf("indexing pods by pool: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.SandboxPool{}, indexTemplate, func(o client.Object) []string {
		if ref := o.(*v1alpha1.SandboxPool).Spec.TemplateRef; ref != nil {
			return []string{ref.Name}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("indexing pools by template: %w", err)
	}
	if opts.MaxConcurrentReconciles == 0 {
		opts.MaxConcurrentReconciles = 4
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("sandboxpool").
		For(&v1alpha1.SandboxPool{}, builder.WithPredicates(predicate.Or[client.Object](
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&corev1.Pod{}, r.podHandler()).
		Watches(&v1alpha1.Sandbox{}, handler.EnqueueRequestsFromMapFunc(poolOfSandbox), builder.WithPredicates(endMoved())).
		Watches(&v1alpha1.SandboxTemplate{}, handler.EnqueueRequestsFromMapFunc(r.poolsOfTemplate)).
		WithOptions(opts).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the sandboxpool controller: %w", err)
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// podHandler meets the expectations, then asks for the pool.
func (r *SandboxPoolReconciler) podHandler() handler.EventHandler {
	enqueue := func(o client.Object, q queue) types.NamespacedName {
		key := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetLabels()[v1alpha1.LabelPool]}
		if key.Name != "" {
			q.Add(reconcile.Request{NamespacedName: key})
		}
		return key
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			r.expectations.CreationObserved(enqueue(e.Object, q))
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			key := enqueue(e.ObjectNew, q)
			if e.ObjectNew.GetDeletionTimestamp() != nil {
				r.expectations.DeletionObserved(key, e.ObjectNew.GetUID())
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			r.expectations.DeletionObserved(enqueue(e.Object, q), e.Object.GetUID())
		},
	}
}

func poolOfSandbox(_ context.Context, o client.Object) []reconcile.Request {
	s := o.(*v1alpha1.Sandbox)
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: s.Spec.Namespace, Name: s.Spec.Pool}}}
}

// endMoved lets those changes of Sandboxes through that let a pod go: an end,
// and how far it has been carried out.
func endMoved() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, now := e.ObjectOld.(*v1alpha1.Sandbox), e.ObjectNew.(*v1alpha1.Sandbox)
			return now.Spec.End != nil && (before.Spec.End == nil || before.Status.Phase != now.Status.Phase ||
				before.Status.Address != now.Status.Address || !equality.Semantic.DeepEqual(before.Status.FencedAt, now.Status.FencedAt))
		},
	}
}

func (r *SandboxPoolReconciler) poolsOfTemplate(ctx context.Context, o client.Object) []reconcile.Request {
	var pools v1alpha1.SandboxPoolList
	if err := r.Client.List(ctx, &pools, client.MatchingFields{indexTemplate: o.GetName()}); err != nil {
		return nil // the pools' resync finds it
	}
	var requests []reconcile.Request
	for _, p := range pools.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&p)})
	}
	return requests
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}
