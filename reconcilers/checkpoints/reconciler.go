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
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/failpoint"
)

const (
	// createPatience is how long a Checkpoint may take to succeed. It is longer than a
	// gateway works on one.
	createPatience = 3 * time.Minute
	// failedTTL is how long a failed Checkpoint is kept, for people to read. After a restore
	// of etcd its data may be whole, and the only copy, as data without a name.
	failedTTL = unnamedTTL
	// pausePoll is how often the Checkpoint of a pause is reconciled, besides at each change
	// of its sandbox.
	pausePoll = time.Minute
)

// Store deletes archives. A checkpoint.Store implements it.
type Store interface {
	Delete(ctx context.Context, id string) error
	List(ctx context.Context) ([]checkpoint.Entry, error)
}

// Reconciler ends Checkpoints.
type Reconciler struct {
	client.Client
	// Live must not read from a cache.
	Live client.Reader
	// Store has the data. Nil: there is none now, and data of before is left to the Sweeper of a
	// later process.
	Store Store
	// Metrics may be nil.
	Metrics *Metrics
	// Clock is the real one if nil.
	Clock clock.Clock

	// seenBeingMade says when this process first saw each Checkpoint that is being made.
	// The Checkpoint's creationTimestamp is not used, since the API server's clock may be
	// behind this process's by more than createPatience. Only the one worker uses it.
	seenBeingMade map[types.NamespacedName]sighting
}

// sighting says when an object with this UID was first seen.
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
		// A Checkpoint that its sandbox does not need any more is deleted at once.
		Watches(&v1alpha1.Sandbox{}, handler.EnqueueRequestsFromMapFunc(r.ofSandbox), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the checkpoint controller: %w", err)
	}
	return nil
}

// Reconcile does what is due for one Checkpoint.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cp := &v1alpha1.Checkpoint{}
	if err := r.Get(ctx, req.NamespacedName, cp); err != nil {
		if apierrors.IsNotFound(err) {
			r.Metrics.note(req.NamespacedName, nil)
			delete(r.seenBeingMade, req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.Metrics.note(req.NamespacedName, cp)
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
		return ctrl.Result{}, r.deleteData(ctx, cp)
	}
	if what == nothing || in > 0 {
		return ctrl.Result{RequeueAfter: in}, nil
	}
	if what == fail {
		return ctrl.Result{}, r.writeFailed(ctx, cp)
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

// beingMade returns how long this process has seen the Checkpoint being made; 0 if it is not
// being made.
func (r *Reconciler) beingMade(cp *v1alpha1.Checkpoint, now time.Time) time.Duration {
	name := client.ObjectKeyFromObject(cp)
	switch cp.Status.Phase {
	case "", v1alpha1.CheckpointPending, v1alpha1.CheckpointCreating:
	default:
		delete(r.seenBeingMade, name)
		return 0
	}
	seen := r.seenBeingMade[name]
	if seen.of != cp.UID {
		if r.seenBeingMade == nil {
			r.seenBeingMade = map[types.NamespacedName]sighting{}
		}
		seen = sighting{cp.UID, now}
		r.seenBeingMade[name] = seen
	}
	return now.Sub(seen.since)
}

// due returns what is to be done with a Checkpoint without a request, and in how long.
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

// writeFailed writes that a Checkpoint failed. If the gateway that made it still works on it,
// the gateway's next write is refused.
func (r *Reconciler) writeFailed(ctx context.Context, cp *v1alpha1.Checkpoint) error {
	return r.setStatus(ctx, cp, func(s *v1alpha1.CheckpointStatus) {
		s.Phase, s.Message = v1alpha1.CheckpointFailed, "it was not completed: the gateway that made it has stopped, or no gateway has made it"
		s.CompletedAt = new(metav1.NewTime(r.Clock.Now()))
	})
}

// deleteData deletes the data of a Checkpoint that is being deleted, and then removes the
// Checkpoint's finalizer.
func (r *Reconciler) deleteData(ctx context.Context, cp *v1alpha1.Checkpoint) error {
	if !controllerutil.ContainsFinalizer(cp, v1alpha1.FinalizerCheckpoint) {
		return nil
	}
	if cp.Status.Phase != v1alpha1.CheckpointTerminating {
		if err := r.setStatus(ctx, cp, func(s *v1alpha1.CheckpointStatus) { s.Phase = v1alpha1.CheckpointTerminating }); err != nil {
			return err
		}
	}
	// If a gateway puts the data only after this, the Checkpoint is gone, and the Sweeper
	// deletes the data.
	if r.Store == nil {
		log.FromContext(ctx).Info("a checkpoint is deleted without a store: its data, if it has any, is swept once there is one again", "checkpoint", cp.Name, "archive", cp.UID)
	} else if err := r.Store.Delete(ctx, string(cp.UID)); err != nil {
		return fmt.Errorf("deleting the data of checkpoint %s: %w", cp.Name, err)
	}
	failpoint.Hit("checkpoints/deleted") // the data is gone, the object is not
	base := cp.DeepCopy()
	controllerutil.RemoveFinalizer(cp, v1alpha1.FinalizerCheckpoint)
	err := r.Patch(ctx, cp, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("removing the finalizer of checkpoint %s: %w", cp.Name, err)
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
