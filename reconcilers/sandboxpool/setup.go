package sandboxpool

import (
	"context"
	"errors"
	"fmt"
	"maps"

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
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/address"
	"github.com/sandlane/sandlane/reconcilers/internal/pausecount"
)

const (
	// indexTemplate is the field index of pools by templateRef.
	indexTemplate = "template"
)

// SetupWithManager registers the reconciler, its indexes, those of package address and that
// of paused sandboxes. Call it once per manager, before the manager starts. The pods in the
// manager's cache must be all pool pods of the cluster.
func (r *SandboxPoolReconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	if r.Scheme == nil {
		r.Scheme = mgr.GetScheme()
	}
	if r.Ledger == nil {
		r.Ledger = address.NewLedger(r.Clock, 0)
		if err := mgr.Add(&address.Loader{Ledger: r.Ledger, Live: mgr.GetAPIReader()}); err != nil {
			return fmt.Errorf("adding the ledger's loader: %w", err)
		}
	}
	r.expectations = NewPoolExpectations(r.Clock)
	r.backoff = newCreationBackoff(r.now)
	r.running.runs = map[types.UID]*hookRun{}
	r.rule = &address.Rule{Cache: mgr.GetCache(), Ledger: r.Ledger, Clock: r.Clock}
	ctx := context.Background() // registering an index needs none
	if err := errors.Join(address.AddIndexes(ctx, mgr.GetFieldIndexer()), pausecount.AddIndex(ctx, mgr.GetFieldIndexer())); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.SandboxPool{}, indexTemplate, func(o client.Object) []string {
		if ref := o.(*v1alpha1.SandboxPool).Spec.TemplateRef; ref != nil {
			return []string{ref.Name}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("indexing pools by template: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.SandboxPool{}, indexPrefix, prefixesOf); err != nil {
		return fmt.Errorf("indexing pools by idPrefix: %w", err)
	}
	if opts.MaxConcurrentReconciles == 0 {
		opts.MaxConcurrentReconciles = 4
	}
	build := ctrl.NewControllerManagedBy(mgr).
		Named("sandboxpool").
		For(&v1alpha1.SandboxPool{}, builder.WithPredicates(predicate.Or[client.Object](
			predicate.GenerationChangedPredicate{}, annotationsMoved()))).
		Watches(&corev1.Pod{}, r.podHandler()).
		Watches(&v1alpha1.Sandbox{}, handler.EnqueueRequestsFromMapFunc(poolOfSandbox), builder.WithPredicates(predicate.Or(endMoved(), pauseMoved()))).
		Watches(&v1alpha1.SandboxTemplate{}, handler.EnqueueRequestsFromMapFunc(r.poolsOfTemplate)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.poolsOfNamespace), builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		WithOptions(opts)
	if r.DemandChanged != nil {
		build = build.WatchesRawSource(source.Channel(r.DemandChanged, &handler.EnqueueRequestForObject{}))
	}
	if err := errors.Join(build.Complete(r), mgr.Add(&r.readyHooks)); err != nil {
		return fmt.Errorf("setting up the sandboxpool controller: %w", err)
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// podHandler takes the event in, meets the expectations, and asks for the pool.
// The podIndex has the pod before the expectations are met: a reconcile that finds them met
// finds the pod.
func (r *SandboxPoolReconciler) podHandler() handler.EventHandler {
	ask := func(pool types.NamespacedName, q queue) {
		if pool.Name != "" {
			q.Add(reconcile.Request{NamespacedName: pool})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			pool := r.observe(e.Object.(*corev1.Pod))
			r.expectations.CreationObserved(pool)
			ask(pool, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if before := poolOfPod(e.ObjectOld); before != poolOfPod(e.ObjectNew) {
				r.pods.gone(before, e.ObjectOld.GetName())
				r.claims.gone(before, e.ObjectOld.GetName(), r.now())
				ask(before, q)
			}
			pool := r.observe(e.ObjectNew.(*corev1.Pod))
			if e.ObjectNew.GetDeletionTimestamp() != nil {
				r.expectations.DeletionObserved(pool, e.ObjectNew.GetUID())
			}
			ask(pool, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			pool := poolOfPod(e.Object)
			r.pods.gone(pool, e.Object.GetName())
			r.claims.gone(pool, e.Object.GetName(), r.now())
			r.running.forget(e.Object.GetUID())
			r.expectations.DeletionObserved(pool, e.Object.GetUID())
			ask(pool, q)
		},
	}
}

// observe takes in a pod as the watch shows it, and returns its pool.
func (r *SandboxPoolReconciler) observe(pod *corev1.Pod) types.NamespacedName {
	pool := poolOfPod(pod)
	if v1alpha1.PhaseOf(pod) != v1alpha1.PodStarting || pod.DeletionTimestamp != nil {
		r.running.forget(pod.UID)
	}
	if pool.Name != "" {
		r.claims.observe(pool, pod, r.now()) // before the podIndex: see claims
		r.pods.observe(pool, pod)
	}
	return pool
}

// annotationsMoved lets through every change of a pool's annotations, except one of
// AnnotationLastCreate alone: the reconciler does not use that annotation, and it changes
// every few seconds.
func annotationsMoved() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := maps.Clone(e.ObjectOld.GetAnnotations()), maps.Clone(e.ObjectNew.GetAnnotations())
		delete(before, v1alpha1.AnnotationLastCreate)
		delete(now, v1alpha1.AnnotationLastCreate)
		return !maps.Equal(before, now)
	}}
}

func poolOfPod(pod client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetLabels()[v1alpha1.LabelPool]}
}

func poolOfSandbox(_ context.Context, o client.Object) []reconcile.Request {
	s := o.(*v1alpha1.Sandbox)
	if s.Spec.Pool == "" {
		return nil // a sandbox of an env has no pool until it is bound
	}
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

// pauseMoved lets those changes of Sandboxes through after which another number of them
// is paused.
func pauseMoved() predicate.Predicate {
	is := func(o client.Object) bool { return len(pausecount.PoolsOf(o)) > 0 }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return is(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return is(e.ObjectOld) != is(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return is(e.Object) },
	}
}

// poolsOfNamespace asks for the pools whose prefixes a namespace may allow.
func (r *SandboxPoolReconciler) poolsOfNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	var pools v1alpha1.SandboxPoolList
	if err := r.Client.List(ctx, &pools, client.InNamespace(o.GetName()), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the pools' resync finds it
	}
	var requests []reconcile.Request
	for i := range pools.Items {
		if prefixOf(&pools.Items[i]) != "" {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pools.Items[i])})
		}
	}
	return requests
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
