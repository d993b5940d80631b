package checkpoints

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/failpoint"
)

const (
	// createPatience is how long a Checkpoint may take to succeed: longer than a gateway
	// goes on with one.
	createPatience = 3 * time.Minute
	// failedTTL is how long a failed Checkpoint is kept, for people to read.
	failedTTL = time.Hour
	// pausePoll is the time between two looks at whether a sandbox needs what a pause kept,
	// besides those at each change of the sandbox.
	pausePoll = time.Minute
)

// Store deletes archives. A checkpoint.Store does.
type Store interface {
	Delete(ctx context.Context, id string) error
	List(ctx context.Context) ([]checkpoint.Entry, error)
}

// Reconciler ends Checkpoints.
type Reconciler struct {
	client.Client
	// Live must not read from a cache.
	Live  client.Reader
	Store Store
	// Metrics may be nil.
	Metrics *Metrics
	// Clock is the real one if nil.
	Clock clock.Clock

	// begun is since when this process has seen Checkpoints that are being made: the API
	// server's clock, which says when they were, may be behind this one by more than any
	// patience. One worker uses it.
	begun map[types.NamespacedName]sighting
}

type sighting struct {
	of    types.UID
	since time.Time
}

// SetupWithManager registers the reconciler. Call it once, before the manager starts.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, o controller.Options) error {
	if r.Clock == nil {
		r.Clock = clock.RealClock{}
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Checkpoint{}, indexKeptOf, keptOf); err != nil { // registering an index needs no context
		return fmt.Errorf("indexing checkpoints by their sandbox: %w", err)
	}
	o.MaxConcurrentReconciles = 1
	err := ctrl.NewControllerManagedBy(mgr).Named("checkpoint").For(&v1alpha1.Checkpoint{}).WithOptions(o).
		// A sandbox that needs no longer what was kept of it lets it go at once.
		Watches(&v1alpha1.Sandbox{}, handler.EnqueueRequestsFromMapFunc(r.ofSandbox), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the checkpoint controller: %w", err)
	}
	return nil
}

// Reconcile looks at one Checkpoint.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cp := &v1alpha1.Checkpoint{}
	if err := r.Get(ctx, req.NamespacedName, cp); err != nil {
		if apierrors.IsNotFound(err) {
			r.Metrics.saw(req.NamespacedName, nil)
			delete(r.begun, req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.Metrics.saw(req.NamespacedName, cp)
	now := r.Clock.Now()
	what, in := due(cp, r.beingMade(cp, now), now)
	if cp.Spec.Cause == v1alpha1.CheckpointPause && cp.Status.Phase == v1alpha1.CheckpointSucceeded {
		s, err := r.neededBy(ctx, cp)
		if err == nil && s != nil && cp.DeletionTimestamp != nil {
			s, err = r.endWithNamespace(ctx, cp, s)
		}
		if err != nil || s != nil {
			return ctrl.Result{RequeueAfter: pausePoll}, err
		}
		what, in = remove, 0
	}
	if cp.DeletionTimestamp != nil {
		return ctrl.Result{}, r.finish(ctx, cp)
	}
	if what == nothing || in > 0 {
		return ctrl.Result{RequeueAfter: in}, nil
	}
	if what == fail {
		return ctrl.Result{}, r.fail(ctx, cp)
	}
	err := r.Delete(ctx, cp, client.Preconditions{UID: &cp.UID, ResourceVersion: &cp.ResourceVersion})
	if err := client.IgnoreNotFound(err); err != nil {
		return ctrl.Result{}, fmt.Errorf("deleting checkpoint %s: %w", cp.Name, err)
	}
	return ctrl.Result{}, nil
}

// action is what the controller does with a Checkpoint when its time has come.
type action int

const (
	nothing action = iota
	fail
	remove
)

// beingMade is for how long this process has seen the Checkpoint being made; 0 if it is not.
func (r *Reconciler) beingMade(cp *v1alpha1.Checkpoint, now time.Time) time.Duration {
	name := client.ObjectKeyFromObject(cp)
	switch cp.Status.Phase {
	case "", v1alpha1.CheckpointPending, v1alpha1.CheckpointCreating:
	default:
		delete(r.begun, name)
		return 0
	}
	seen := r.begun[name]
	if seen.of != cp.UID {
		if r.begun == nil {
			r.begun = map[types.NamespacedName]sighting{}
		}
		seen = sighting{cp.UID, now}
		r.begun[name] = seen
	}
	return now.Sub(seen.since)
}

// due says what becomes of a Checkpoint by itself, and in how long.
func due(cp *v1alpha1.Checkpoint, beingMade time.Duration, now time.Time) (what action, in time.Duration) {
	ended := cp.CreationTimestamp.Time
	if cp.Status.CompletedAt != nil {
		ended = cp.Status.CompletedAt.Time
	}
	switch cp.Status.Phase {
	case v1alpha1.CheckpointFailed:
		return remove, max(0, ended.Add(failedTTL).Sub(now))
	case v1alpha1.CheckpointSucceeded:
		if cp.Spec.KeepFor == nil {
			return nothing, 0
		}
		return remove, max(0, ended.Add(cp.Spec.KeepFor.Duration).Sub(now))
	}
	return fail, max(0, createPatience-beingMade)
}

// fail writes that a Checkpoint failed. If the gateway that made it still works on it, the
// gateway's next write is refused.
func (r *Reconciler) fail(ctx context.Context, cp *v1alpha1.Checkpoint) error {
	return r.setStatus(ctx, cp, func(s *v1alpha1.CheckpointStatus) {
		s.Phase, s.Message = v1alpha1.CheckpointFailed, "it was not completed: the gateway that made it has stopped, or nothing has made it"
		s.CompletedAt = new(metav1.NewTime(r.Clock.Now()))
	})
}

// finish deletes the data of a Checkpoint that is being deleted, and lets it go.
func (r *Reconciler) finish(ctx context.Context, cp *v1alpha1.Checkpoint) error {
	if !controllerutil.ContainsFinalizer(cp, v1alpha1.FinalizerCheckpoint) {
		return nil
	}
	if cp.Status.Phase != v1alpha1.CheckpointTerminating {
		if err := r.setStatus(ctx, cp, func(s *v1alpha1.CheckpointStatus) { s.Phase = v1alpha1.CheckpointTerminating }); err != nil {
			return err
		}
	}
	// A gateway that has not put the data yet finds the Checkpoint deleted afterwards, and
	// what it has put is swept.
	if err := r.Store.Delete(ctx, string(cp.UID)); err != nil {
		return fmt.Errorf("deleting the data of checkpoint %s: %w", cp.Name, err)
	}
	failpoint.Hit("checkpoints/deleted") // the data is gone, the object is not
	base := cp.DeepCopy()
	controllerutil.RemoveFinalizer(cp, v1alpha1.FinalizerCheckpoint)
	err := r.Patch(ctx, cp, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("letting checkpoint %s go: %w", cp.Name, err)
	}
	return nil
}

func (r *Reconciler) setStatus(ctx context.Context, cp *v1alpha1.Checkpoint, change func(*v1alpha1.CheckpointStatus)) error {
	base := cp.DeepCopy()
	change(&cp.Status)
	err := r.Status().Patch(ctx, cp, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("writing the status of checkpoint %s: %w", cp.Name, err)
	}
	return nil
}
