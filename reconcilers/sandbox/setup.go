package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/address"
	"github.com/sandlane/sandlane/reconcilers/internal/steadyclock"
)

const (
	// indexPodUID is the field index of Sandboxes by the pod they are bound to.
	indexPodUID = "binding.podUID"
	// indexSandboxID is the field index of pods by the sandbox they name.
	indexSandboxID = "sandboxID"
	// noSandboxID stands for the ID of claimed pods that name no sandbox, because a user has
	// removed the label. It is no valid ID.
	noSandboxID = "/"
)

// sandboxIDOf returns the key of a pod in the index indexSandboxID; none for an unclaimed
// pod.
func sandboxIDOf(pod client.Object) []string {
	if id := pod.GetLabels()[v1alpha1.LabelSandboxID]; id != "" {
		return []string{id}
	}
	if pod.GetAnnotations()[v1alpha1.AnnotationClaim] != "" {
		return []string{noSandboxID}
	}
	return nil
}

// SetupWithManager registers the reconciler, its sweep, its index, and the
// loading of the ledger. Call it once per manager, before the manager starts.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	if r.Fencer == nil || r.Ledger == nil || r.APIReader == nil {
		return errors.New("the sandbox reconciler needs Fencer, Ledger and APIReader")
	}
	if opts.MaxConcurrentReconciles == 0 {
		opts.MaxConcurrentReconciles = DefaultWorkers
	}
	r.complete()
	ctx := context.Background() // registering an index needs no context
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.Sandbox{}, indexPodUID, func(o client.Object) []string {
		if b := o.(*v1alpha1.Sandbox).Spec.Binding; b != nil {
			return []string{b.PodUID}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("indexing sandboxes by pod: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, indexSandboxID, sandboxIDOf); err != nil {
		return fmt.Errorf("indexing pods by sandbox: %w", err)
	}
	if err := mgr.Add(&address.Loader{Ledger: r.Ledger, Live: r.APIReader}); err != nil {
		return fmt.Errorf("adding the ledger's loader: %w", err)
	}
	if err := mgr.Add(&sweeper{r: r}); err != nil {
		return fmt.Errorf("adding the sweep: %w", err)
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("sandbox").
		For(&v1alpha1.Sandbox{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.sandboxesOfPod)).
		WatchesRawSource(source.Func(r.followTimeOfDay)).
		WatchesRawSource(source.Func(r.fences.run)).
		WatchesRawSource(source.Func(r.orders.run)).
		WithOptions(opts).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the sandbox controller: %w", err)
	}
	return nil
}

// complete fills in the defaults.
func (r *Reconciler) complete() {
	def := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	def(&r.FenceTimeout, DefaultFenceTimeout)
	def(&r.BindGrace, DefaultBindGrace)
	def(&r.SweepInterval, DefaultSweep)
	def(&r.UnknownFor, DefaultUnknownFor)
	c := r.Clock
	if c == nil {
		// Times that this process measures itself go by the monotonic clock; times that other
		// processes have written go by the time of day.
		c, r.Clock = clock.RealClock{}, steadyclock.New()
	}
	r.fences = newFences(c, r.attempt)
	r.orders = newFreezerOrders(c, r.PauseEnforcer)
	r.unbound = &firstSeen{clock: c, at: map[string]sighting{}}
	r.podless = &firstSeen{clock: c, at: map[string]sighting{}}
	r.restoring = &firstSeen{clock: c, at: map[string]sighting{}}
	r.written = newOwnWrites()
	r.orphanCandidates = &orphanCandidates{ids: map[string]struct{}{}}
}

// sandboxesOfPod maps a pod to the sandbox that it names and the sandboxes that are bound to
// it.
func (r *Reconciler) sandboxesOfPod(ctx context.Context, o client.Object) []reconcile.Request {
	ids := map[string]struct{}{}
	for _, id := range sandboxIDOf(o) {
		ids[id] = struct{}{}
	}
	var bound v1alpha1.SandboxList
	if err := r.Client.List(ctx, &bound, client.MatchingFields{indexPodUID: string(o.GetUID())}, client.UnsafeDisableDeepCopy); err == nil {
		for i := range bound.Items {
			ids[bound.Items[i].Name] = struct{}{}
		}
	}
	requests := make([]reconcile.Request, 0, len(ids))
	for id := range ids {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: id}})
	}
	return requests
}
