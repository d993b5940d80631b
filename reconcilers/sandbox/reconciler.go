package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/pauseroom"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/reconcilers/address"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool"
)

// Fencer tells every gateway not to route to the address by any pod object older than rv.
// nil means that every gateway has acknowledged this, or has lost its lease. Fence must
// honour ctx, and be safe for concurrent use.
type Fencer interface {
	Fence(ctx context.Context, addr netip.Addr, rv uint64) error
}

// Defaults of the reconciler's options.
const (
	DefaultFenceTimeout = 5 * time.Second
	DefaultBindGrace    = 5 * time.Second
	DefaultSweep        = time.Minute
	// DefaultWorkers is the number of sandboxes that are reconciled at once.
	DefaultWorkers = 16
)

// Reconciler reconciles Sandboxes. Set the fields, then call SetupWithManager
// once. Zero durations mean the defaults.
type Reconciler struct {
	// Client reads from the manager's cache and writes to the API server.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Recorder writes Events; nil writes none.
	Recorder events.EventRecorder
	// Fencer reaches all gateways.
	Fencer Fencer
	// Egress reaches all egress processes, for the addresses of pods with egress ByName.
	// Nil: there are none.
	Egress Fencer
	// Ledger is shared with reconcilers/sandboxpool.
	Ledger *address.Ledger
	// ApplyClaim sends the claim PATCH of a binding in place of its owner, which did not. If
	// it is nil, such a sandbox waits for the next request or its startup timeout. After an
	// error the sandbox is reconciled again.
	ApplyClaim func(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error
	// PauseEnforcer reaches freezers; nil: no sandbox can be paused.
	PauseEnforcer PauseEnforcer
	// Hibernates: there is a store for the files of sandboxes, so that timeouts may make
	// them hibernate.
	Hibernates bool
	// UnknownFor is how long a sandbox that its timeout has paused stays Pausing while its
	// pod is silent; then it ends.
	UnknownFor time.Duration
	// SandboxStore keeps the records of ended sandboxes; nil keeps none.
	SandboxStore sandboxpool.SandboxStore
	// FenceTimeout bounds one attempt to reach all gateways.
	FenceTimeout time.Duration
	// BindGrace is how long a binding may exist without its claim on the pod before the
	// controller acts in its owner's place.
	BindGrace time.Duration
	// SweepInterval is the time between two sweeps.
	SweepInterval time.Duration
	// Clock is the real one if nil; that one follows a step of the machine's time of day
	// only after a minute.
	Clock clock.PassiveClock
	// Metrics may be nil.
	Metrics *Metrics

	fences *fences
	orders *freezerOrders
	rooms  pauseroom.Rooms // of sandboxes that timeouts pause
	// unbound has the sandboxes whose binding has no claim on its pod, podless those for
	// which a client waits and that never had a pod, and restoring those that are resumed
	// and whose files are not restored yet.
	unbound, podless, restoring *firstSeen
	written                     *ownWrites
	// orphanCandidates are the IDs that the next sweep checks.
	orphanCandidates *orphanCandidates
}

// Reconcile brings the Sandbox as far as possible without waiting.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &v1alpha1.Sandbox{}
	err := r.Client.Get(ctx, req.NamespacedName, s)
	if err := r.noteCandidate(ctx, req.Name, s, err); err != nil {
		return ctrl.Result{}, err
	}
	if apierrors.IsNotFound(err) {
		r.unbound.forget(req.Name)
		r.podless.forget(req.Name)
		r.restoring.forget(req.Name)
		r.fences.forgetAll(req.Name)
		r.orders.forget(req.Name)
		r.written.forget(req.Name)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the sandbox: %w", err)
	}
	if r.written.ahead(s) {
		return ctrl.Result{}, nil // the event of the write queues the sandbox
	}
	if s.Spec.End != nil {
		r.orders.forget(req.Name)
		r.unbound.forget(req.Name)
		r.podless.forget(req.Name)
		r.restoring.forget(req.Name)
		return r.carryOutEnd(ctx, s)
	}
	if s.DeletionTimestamp != nil {
		return ctrl.Result{}, r.writeEnd(ctx, s, v1alpha1.EndDeleted, "the Sandbox object was deleted")
	}
	if !controllerutil.ContainsFinalizer(s, v1alpha1.FinalizerSandbox) {
		return ctrl.Result{}, r.adopt(ctx, s)
	}
	return r.reconcileLive(ctx, s)
}

// adopt adds the finalizer to a Sandbox that was created without it.
func (r *Reconciler) adopt(ctx context.Context, s *v1alpha1.Sandbox) error {
	p := writes.For(s.UID)
	if len(s.Finalizers) == 0 {
		p = p.Test("/metadata/finalizers", nil).Set("/metadata/finalizers", []string{v1alpha1.FinalizerSandbox})
	} else {
		p = p.Set("/metadata/finalizers/-", v1alpha1.FinalizerSandbox)
	}
	if err := r.patch(ctx, s, p); err != nil {
		return fmt.Errorf("adding the finalizer: %w", err)
	}
	return nil
}

// writeEnd writes the end of the sandbox, if it is still as it was read where that matters
// for the reason. The event of the write leads to carryOutEnd.
func (r *Reconciler) writeEnd(ctx context.Context, s *v1alpha1.Sandbox, reason v1alpha1.EndReason, message string) error {
	tests := []writes.Test{writes.OfUID(s.UID)}
	if reason == v1alpha1.EndEndAt || reason == v1alpha1.EndIdleTimeout || reason == v1alpha1.EndPauseTimeout {
		// A client may have extended or resumed the sandbox since it was read, and was told
		// that this succeeded.
		tests = append(tests, writes.OfGeneration(s.Generation))
	}
	if s.Spec.Binding != nil && reason != v1alpha1.EndDeleted && reason != v1alpha1.EndEndAt {
		tests = append(tests, writes.OfClaim(s.Spec.Binding.ClaimID))
	} else if reason == v1alpha1.EndStartupTimeout {
		tests = append(tests, writes.Unbound())
	}
	failpoint.Hit("sandbox/finishing") // the sandbox is to be ended, and its end is not written
	err := writes.EndSandbox(ctx, r.Client, s.Name, reason, message, tests...)
	if errors.Is(err, writes.ErrStale) || apierrors.IsNotFound(err) {
		return nil // the sandbox has changed; the event of the change queues it
	}
	return err
}

// patch is write, and a refused write is no error to it: the Sandbox has changed or is gone,
// and the event of that queues it.
func (r *Reconciler) patch(ctx context.Context, s *v1alpha1.Sandbox, p writes.Patch) error {
	if err := r.write(ctx, s, p); !writes.Moved(err) {
		return err
	}
	return nil
}

// write sends a conditional write of the Sandbox.
func (r *Reconciler) write(ctx context.Context, s *v1alpha1.Sandbox, p writes.Patch) error {
	out := &v1alpha1.Sandbox{}
	out.Name = s.Name
	err := r.Client.Patch(ctx, out, p.Build())
	if err == nil {
		r.written.note(out)
	}
	return err
}

// retryIfMoved turns an error that only says that an object has changed since it was read
// into a reconcile in retrySoon.
func retryIfMoved(err error) (ctrl.Result, error) {
	if errors.Is(err, writes.ErrStale) || apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: retrySoon}, nil
	}
	return ctrl.Result{}, err
}

func (r *Reconciler) now() time.Time {
	return r.Clock.Now()
}

func (r *Reconciler) event(s *v1alpha1.Sandbox, kind, reason, action, note string, args ...any) {
	if r.Recorder != nil {
		r.Recorder.Eventf(s, nil, kind, reason, action, note, args...)
	}
}
