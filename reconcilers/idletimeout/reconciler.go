package idletimeout

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/ending"
)

// DefaultInterval is the time between two checks.
const DefaultInterval = 2 * time.Second

// LastActiveSource tells when each sandbox was last in use, by ID, over all
// gateways. An ID that is missing was not seen in use. An error means that some
// gateway could not tell.
type LastActiveSource interface {
	GetLastActive(ctx context.Context) (map[string]time.Time, error)
}

// Memory is what a source may add: how far back it remembers, and what it need
// no longer remember.
type Memory interface {
	// Floor is the time before which some use may be forgotten; read after
	// GetLastActive.
	Floor() time.Time
	// Retain forgets the claims that keep refuses.
	Retain(keep func(id, claim string) bool)
}

// SandboxStore keeps what people see of a sandbox's use.
type SandboxStore interface {
	// SaveLastActive notes when the sandbox with this UID was last in use.
	SaveLastActive(ctx context.Context, s *v1alpha1.Sandbox, at time.Time) error
}

// IdleTimeoutReconciler ends sandboxes that are idle for longer than their idle
// timeout, or have not started within their startup timeout. Use
// NewIdleTimeoutReconciler; APIReader, Clock and Metrics may be set before Start.
type IdleTimeoutReconciler struct {
	client   client.Client
	store    SandboxStore
	interval time.Duration
	source   LastActiveSource

	// APIReader reads from the API server. It is the client given to
	// NewIdleTimeoutReconciler unless set.
	APIReader client.Reader
	// Clock is the real one unless set.
	Clock clock.WithTicker
	// Metrics is nil for none.
	Metrics *Metrics

	seen   map[claimKey]time.Time
	starts map[claimKey]time.Time // since when each claim starts, as far as was seen
	due    time.Time              // when the next of them is late; zero: none starts
	dealt  map[string]struct{}    // tokens of releases that are over, while the cache may show them
	saving *throttle
}

// claimKey tells claims apart, also those of two sandboxes of one ID.
type claimKey struct{ id, claim string }

// NewIdleTimeoutReconciler returns a Runnable that checks at once and then each
// interval (≤ 0 means DefaultInterval). c reads from the manager's cache. A nil
// store keeps no lastActive. A nil source logs a warning and releases nothing
// for idleness.
func NewIdleTimeoutReconciler(c client.Client, store SandboxStore, interval time.Duration, source LastActiveSource) *IdleTimeoutReconciler {
	if interval <= 0 {
		interval = DefaultInterval
	}
	return &IdleTimeoutReconciler{
		client: c, APIReader: c, store: store, interval: interval, source: source,
		Clock: clock.RealClock{}, seen: map[claimKey]time.Time{}, dealt: map[string]struct{}{}, saving: newThrottle(),
	}
}

// SetupWithManager adds the reconciler to the manager.
func (r *IdleTimeoutReconciler) SetupWithManager(mgr manager.Manager) error {
	if err := mgr.Add(r); err != nil {
		return fmt.Errorf("adding the idle timeout: %w", err)
	}
	return nil
}

// NeedLeaderElection is true: idle time counts from the start of a leadership.
func (r *IdleTimeoutReconciler) NeedLeaderElection() bool { return true }

// Start checks until ctx is done.
func (r *IdleTimeoutReconciler) Start(ctx context.Context) error {
	if r.source == nil {
		log.FromContext(ctx).Info("warning: no source of activity: no sandbox is released for idleness")
	}
	ticker := r.Clock.NewTicker(r.interval)
	defer ticker.Stop()
	for r.check(ctx); ; {
		late := r.Clock.NewTimer(r.untilDue())
		select {
		case <-ctx.Done():
			late.Stop()
			return nil
		case <-late.C():
			r.checkStarts(ctx)
		case <-ticker.C():
			r.check(ctx)
		}
		late.Stop()
	}
}

// untilDue is when to look for late starts, besides at each check.
func (r *IdleTimeoutReconciler) untilDue() time.Duration {
	if r.due.IsZero() {
		return time.Hour
	}
	return max(r.due.Sub(r.Clock.Now()), 0)
}

// check runs once through everything. Errors are logged: the next check is the
// retry.
func (r *IdleTimeoutReconciler) check(ctx context.Context) {
	start := r.Clock.Now()
	r.checkStarts(ctx)
	if r.source == nil {
		return
	}
	if err := r.releaseIdle(ctx); err != nil && ctx.Err() == nil {
		r.Metrics.failed()
		log.FromContext(ctx).Error(err, "nothing is released for idleness")
	}
	r.Metrics.checked(r.Clock.Since(start))
}

func (r *IdleTimeoutReconciler) checkStarts(ctx context.Context) {
	if err := r.CheckAndReleasePendingSandboxes(ctx); err != nil && ctx.Err() == nil {
		log.FromContext(ctx).Error(err, "checking for sandboxes that did not start")
	}
}

// releaseIdle is what the package comment says, and the persisting of lastActive.
func (r *IdleTimeoutReconciler) releaseIdle(ctx context.Context) error {
	var list v1alpha1.SandboxList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing sandboxes: %w", err)
	}
	running := r.sight(list.Items)
	if err := r.callOffLeftovers(ctx, list.Items); err != nil {
		return err
	}
	used, err := r.source.GetLastActive(ctx)
	if err != nil {
		return fmt.Errorf("asking the gateways what is in use: %w", err)
	}
	timeouts := newTimeouts(r.client)
	r.persist(ctx, running, used, timeouts)
	candidates, err := r.pick(ctx, running, used, timeouts)
	if err != nil || len(candidates) == 0 {
		return err
	}
	return r.release(ctx, candidates, used, timeouts)
}

// end writes spec.end if the sandbox is still bound by the claim that was judged.
func (r *IdleTimeoutReconciler) end(ctx context.Context, s *v1alpha1.Sandbox, reason v1alpha1.EndReason, message string, more ...ending.Test) error {
	tests := append([]ending.Test{ending.OfUID(s.UID), ending.OfClaim(s.Spec.Binding.ClaimID)}, more...)
	err := ending.EndSandbox(ctx, r.client, s.Name, reason, message, tests...)
	switch {
	case err == nil:
		r.Metrics.released(reason)
		return nil
	case errors.Is(err, ending.ErrMoved), apierrors.IsNotFound(err):
		return nil
	default:
		return err
	}
}
