package autoscaler

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
)

// againAfter is when an env is looked at again whose replicas could not be written:
// another writer has changed it, and the cache shows it by then.
const againAfter = time.Second

// Demand returns what waits for pods, over all gateways; controlplane.Demands is one. It
// is safe for concurrent use.
type Demand interface {
	Of(pool types.NamespacedName) controlplane.Demand
}

// Reconciler sizes the members of envs. Set the fields, then call SetupWithManager
// once.
type Reconciler struct {
	// Client reads from the manager's cache and writes to the API server.
	Client client.Client
	// LocalClusterID is the entry of spec.clusters that is this controller's. Needed.
	LocalClusterID string
	// Demand is nil where no gateway can be asked: then nothing shrinks.
	Demand Demand
	// Recorder is nil for no Events.
	Recorder events.EventRecorder
	// Clock is nil for the real one.
	Clock clock.PassiveClock
	// Metrics is nil for none.
	Metrics *Metrics

	memory memory
	pace   pace
}

// Reconcile looks at an env once: it reads its members, decides group by group, notes
// the bookkeeping on the pools and then writes the replicas to the env.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	env := &v1alpha1.SandboxEnv{}
	err := r.Client.Get(ctx, req.NamespacedName, env, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading the env: %w", err)
	case env.DeletionTimestamp != nil:
		return ctrl.Result{}, nil
	}
	now := r.now()
	members, err := r.read(ctx, env, now)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.show(req.NamespacedName, members, now)
	changes := decide(env, members, now)
	written, err := r.write(ctx, env, changes, now)
	if err != nil {
		return ctrl.Result{}, err
	}
	switch {
	case !written:
		return ctrl.Result{RequeueAfter: againAfter}, nil
	case enabled(env):
		return ctrl.Result{RequeueAfter: r.pace.next(req.NamespacedName, env.Generation, members, anyNew(changes))}, nil
	}
	r.pace.forget(req.NamespacedName)
	return ctrl.Result{}, nil // its pools' changes ask again
}

// anyNew reports whether a decision changed replicas or bookkeeping.
func anyNew(changes []change) bool {
	return slices.ContainsFunc(changes, func(c change) bool { return c.resized() || c.to.State != c.from.State })
}

func enabled(env *v1alpha1.SandboxEnv) bool {
	return env.Spec.Autoscaling != nil && env.Spec.Autoscaling.Enabled
}

// now is the time in whole seconds, as the API keeps times, rounded up: a create that
// has justified a step is not after it.
func (r *Reconciler) now() time.Time {
	now := time.Now
	if r.Clock != nil {
		now = r.Clock.Now
	}
	return now().Add(time.Second - 1).Truncate(time.Second)
}
