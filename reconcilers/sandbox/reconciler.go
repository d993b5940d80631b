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
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/kubeclient/ending"
	"github.com/sandlane/sandlane/kubeclient/jsonpatch"
	"github.com/sandlane/sandlane/reconcilers/address"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool"
)

// Fencer tells every gateway that whatever a pod object older than rv says about
// the address is over. nil means that all have acknowledged, or lost their
// lease. It must honour ctx, and be safe for concurrent use.
type Fencer interface {
	Fence(ctx context.Context, addr netip.Addr, rv uint64) error
}

// Defaults of the reconciler's options.
const (
	DefaultFenceTimeout = 5 * time.Second
	DefaultBindGrace    = 5 * time.Second
	DefaultSweep        = time.Minute
	// DefaultWorkers is the number of sandboxes worked on at once.
	DefaultWorkers = 16
)

// Reconciler reconciles Sandboxes. Set the fields, then call SetupWithManager
// once. Zero durations mean the defaults.
type Reconciler struct {
	// Client reads from the manager's cache and writes to the API server.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Recorder is nil for no Events.
	Recorder events.EventRecorder
	// Fencer reaches all gateways.
	Fencer Fencer
	// Ledger is shared with reconcilers/sandboxpool.
	Ledger *address.Ledger
	// ApplyClaim sends the claim PATCH of a binding whose owner did not; nil
	// leaves such a sandbox to the next request or its startup timeout. An error
	// asks to look again.
	ApplyClaim func(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error
	// Quiescer reaches freezers; nil: no sandbox can be paused.
	Quiescer Quiescer
	// Hibernates: there is a store for the files of sandboxes, so that timeouts may have
	// them hibernate.
	Hibernates bool
	// SandboxStore keeps the records of ended sandboxes; nil keeps none.
	SandboxStore sandboxpool.SandboxStore
	// FenceTimeout bounds one attempt to reach all gateways. It keeps no worker.
	FenceTimeout time.Duration
	// BindGrace is how long a binding may stand without its claim on the pod
	// before another process than its owner acts.
	BindGrace time.Duration
	// SweepInterval is the time between two looks of the sweep.
	SweepInterval time.Duration
	// Clock is nil for the real one, which does not follow a step of the machine's
	// time of day before it has stood for a minute.
	Clock clock.PassiveClock
	// Metrics is nil for none.
	Metrics *Metrics

	fences  *fences
	quiets  *quiets
	unbound *firstSeen
	podless *firstSeen
	// restoring are the sandboxes that are resumed without their files yet.
	restoring *firstSeen
	written   *ownWrites
	// suspects are the sandboxes that the next sweep looks at.
	suspects *suspects
}

// Reconcile takes the Sandbox as far as it gets without waiting.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &v1alpha1.Sandbox{}
	err := r.Client.Get(ctx, req.NamespacedName, s)
	if err := r.suspect(ctx, req.Name, s, err); err != nil {
		return ctrl.Result{}, err
	}
	if apierrors.IsNotFound(err) {
		r.unbound.forget(req.Name)
		r.podless.forget(req.Name)
		r.restoring.forget(req.Name)
		r.fences.forgetAll(req.Name)
		r.quiets.forget(req.Name)
		r.written.forget(req.Name)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the sandbox: %w", err)
	}
	if r.written.ahead(s) {
		return ctrl.Result{}, nil // the write's event asks again
	}
	if s.Spec.End != nil {
		r.quiets.forget(req.Name)
		r.unbound.forget(req.Name)
		r.podless.forget(req.Name)
		r.restoring.forget(req.Name)
		return r.end(ctx, s)
	}
	if s.DeletionTimestamp != nil {
		return ctrl.Result{}, r.finish(ctx, s, v1alpha1.EndDeleted, "the Sandbox object was deleted")
	}
	if !controllerutil.ContainsFinalizer(s, v1alpha1.FinalizerSandbox) {
		return ctrl.Result{}, r.adopt(ctx, s)
	}
	return r.live(ctx, s)
}

// adopt gives a Sandbox that was created without it its finalizer.
func (r *Reconciler) adopt(ctx context.Context, s *v1alpha1.Sandbox) error {
	p := jsonpatch.For(s.UID)
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

// finish writes the end of exactly this sandbox as it was seen; its event
// carries it out.
func (r *Reconciler) finish(ctx context.Context, s *v1alpha1.Sandbox, reason v1alpha1.EndReason, message string) error {
	tests := []ending.Test{ending.OfUID(s.UID)}
	if reason == v1alpha1.EndEndAt || reason == v1alpha1.EndIdleTimeout || reason == v1alpha1.EndPauseTimeout {
		// The view may lack an extension, or a resume, that its writer has been told
		// stands.
		tests = append(tests, ending.OfGeneration(s.Generation))
	}
	if s.Spec.Binding != nil && reason != v1alpha1.EndDeleted && reason != v1alpha1.EndEndAt {
		tests = append(tests, ending.OfClaim(s.Spec.Binding.ClaimID))
	} else if reason == v1alpha1.EndStartupTimeout {
		tests = append(tests, ending.Unbound())
	}
	failpoint.Hit("sandbox/finishing") // to be ended, and no end written
	err := ending.EndSandbox(ctx, r.Client, s.Name, reason, message, tests...)
	if errors.Is(err, ending.ErrMoved) || apierrors.IsNotFound(err) {
		return nil // the view was old; the event of what happened asks again
	}
	return err
}

// patch sends a conditional write of the Sandbox. Refused means that it has
// moved on, or is gone: its event asks again.
func (r *Reconciler) patch(ctx context.Context, s *v1alpha1.Sandbox, p jsonpatch.Patch) error {
	out := &v1alpha1.Sandbox{}
	out.Name = s.Name
	if err := r.Client.Patch(ctx, out, p.Build()); err != nil && !jsonpatch.Moved(err) {
		return err
	} else if err == nil {
		r.written.note(out)
	}
	return nil
}

// errMoved: the pod changed under the look; start over at once.
var errMoved = errors.New("the pod has moved on")

// again turns what a fresh look mends into one.
func again(err error) (ctrl.Result, error) {
	if errors.Is(err, errMoved) || apierrors.IsConflict(err) {
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

func sooner(a, b time.Duration) time.Duration {
	if a <= 0 || (b > 0 && b < a) {
		return b
	}
	return a
}
