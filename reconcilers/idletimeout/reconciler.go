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
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// DefaultInterval is the time between two checks if none is given; sandlane controller gives 1 s.
const DefaultInterval = 2 * time.Second

// LastActiveSource tells when each claim was last in use, over all gateways.
type LastActiveSource interface {
	// Poll asks every gateway what was in use since it was last asked. An error means
	// that some gateway could not tell.
	Poll(ctx context.Context) error
	// LastActive returns when the claim was last in use, by what Poll has heard; false
	// if no gateway has said so. It is asked of each sandbox every few seconds.
	LastActive(id, claim string) (time.Time, bool)
}

// Memory is what a source may add: how far back it remembers, what it need no longer
// remember, and what outlasts this process.
type Memory interface {
	// Floor is the time before which some use may be forgotten; read after
	// Poll.
	Floor() time.Time
	// Retain forgets the claims that keep refuses. The claim is empty for an ID that
	// was in use before its claim was known.
	Retain(keep func(id, claim string) bool)
	// SeenRunning notes since when this process has seen a claim run, for the next leader:
	// it holds for this pauseOrder of the Sandbox.
	SeenRunning(id, claim string, at time.Time, order int64)
	// RunningSince returns what this leader or the one before it has noted, as far as that
	// is known; read after Poll.
	RunningSince(id, claim string) (at time.Time, order int64, ok bool)
}

// SandboxStore keeps what people see of a sandbox's use.
type SandboxStore interface {
	// SaveLastActive notes when the sandbox with this UID was last in use.
	SaveLastActive(ctx context.Context, s *v1alpha1.Sandbox, at time.Time) error
}

// Pauser is reconcilers/sandbox.
type Pauser interface {
	// PauseIdle pauses a sandbox as the commit of its idle release with this token, if that has
	// not been called off. It returns false if the sandbox is to be ended instead.
	PauseIdle(ctx context.Context, s *v1alpha1.Sandbox, token string) (bool, error)
}

// IdleTimeoutReconciler ends sandboxes that are idle for longer than their idle
// timeout, or have not started within their startup timeout. Use
// NewIdleTimeoutReconciler; APIReader, Clock, Metrics and Pauser may be set before Start.
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
	// Pauser pauses idle sandboxes instead of ending them; nil: all end.
	Pauser Pauser

	feed   feed
	claims claims
	due    time.Time           // when the next start is late; zero: none starts
	dealt  map[string]struct{} // tokens of releases that are over, while the cache may show them
	saving *throttle
	turn   int // whose lastActive is looked at next: an index in claims.all
	// looked: Sandboxes were taken in once.
	looked bool
	// inherited: the times of the leader before this one were asked for.
	inherited bool
	// retained is when the source was last told what it may forget.
	retained time.Time
}

// claimKey tells claims apart, also those of two sandboxes of one ID.
type claimKey struct{ id, claim string }

// NewIdleTimeoutReconciler returns a Runnable that checks at once and then each
// interval (≤ 0 means DefaultInterval); SetupWithManager adds it to its manager. c
// reads from the manager's cache. A nil
// store keeps no lastActive. A nil source logs a warning and releases nothing
// for idleness.
func NewIdleTimeoutReconciler(c client.Client, store SandboxStore, interval time.Duration, source LastActiveSource) *IdleTimeoutReconciler {
	if interval <= 0 {
		interval = DefaultInterval
	}
	return &IdleTimeoutReconciler{
		client: c, APIReader: c, store: store, interval: interval, source: source,
		Clock: clock.RealClock{}, claims: newClaims(), dealt: map[string]struct{}{}, saving: &throttle{},
	}
}

// SetupWithManager adds the reconciler to the manager, whose watch of Sandboxes it
// follows.
func (r *IdleTimeoutReconciler) SetupWithManager(mgr manager.Manager) error {
	r.feed = &informed{informers: mgr.GetCache()}
	if err := mgr.Add(r); err != nil {
		return fmt.Errorf("adding the idle timeout: %w", err)
	}
	return nil
}

// NeedLeaderElection is true: one process decides.
func (r *IdleTimeoutReconciler) NeedLeaderElection() bool { return true }

// Start checks until ctx is done.
func (r *IdleTimeoutReconciler) Start(ctx context.Context) error {
	if r.feed == nil {
		return errors.New("the idle timeout follows the manager's watch of Sandboxes: add it by SetupWithManager, not by mgr.Add")
	}
	if r.source == nil {
		log.FromContext(ctx).Info("warning: no source of activity: no sandbox is released for idleness")
	}
	if err := r.feed.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
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

// releaseIdle releases what is idle, and persists lastActive. checkStarts has taken in
// what changed. The steps:
//
//  1. Ask every gateway what was in use. If one does not answer or does not
//     know, anything may be in use, and nothing is released for idleness.
//  2. Idle time counts from the latest of: when this process, or the leader before it,
//     first saw the claim running, its last use, and Floor, before which some memory is
//     lost. Only monotonic clocks are asked (docs/design/last-use.md).
//  3. A claim that is idle for longer than its timeout is a candidate. A timeout of
//     less than 4 s counts as 4 s (0 still means never): what the gateways know
//     of an open but silent connection can be almost that old.
//  4. Begin: a token is written on the Sandbox (spec.release), testing the claim.
//  5. Prepare: every gateway that has a lease now holds new requests of the claim,
//     then says whether the sandbox is in use. One that joins later finds the
//     token in its list and holds too.
//  6. Commit: the end, or the pause, is written, testing the claim and the token. If a
//     gateway says that the sandbox is in use, does not know, does not answer, or has
//     gone with what it knew, the release is called off: the token is taken away.
//
// So a request either comes before the hold, and is seen in 5, or waits for the
// outcome: for an answer by the sandbox that stays, or as one that has ended. A
// request that has waited two seconds takes the token away itself; then 6 is
// refused.
func (r *IdleTimeoutReconciler) releaseIdle(ctx context.Context) error {
	if err := r.callOffLeftovers(ctx); err != nil {
		return err
	}
	r.retain()
	if err := r.source.Poll(ctx); err != nil {
		return fmt.Errorf("asking the gateways what is in use: %w", err)
	}
	r.inherit()
	timeouts := newTimeouts(r.client)
	r.persist(ctx, timeouts)
	if err := r.lookAtPools(ctx, timeouts); err != nil {
		return err
	}
	candidates, err := r.pick(ctx, r.claims.all, timeouts)
	if err != nil || len(candidates) == 0 {
		return err
	}
	return r.release(ctx, candidates, timeouts)
}

// end writes spec.end if the sandbox is still bound by the claim that was judged.
func (r *IdleTimeoutReconciler) end(ctx context.Context, s *v1alpha1.Sandbox, reason v1alpha1.EndReason, message string, more ...writes.Test) error {
	tests := append([]writes.Test{writes.OfUID(s.UID), writes.OfClaim(s.Spec.Binding.ClaimID)}, more...)
	err := writes.EndSandbox(ctx, r.client, s.Name, reason, message, tests...)
	switch {
	case err == nil:
		r.Metrics.released(reason)
		return nil
	case errors.Is(err, writes.ErrStale), apierrors.IsNotFound(err):
		return nil
	default:
		return err
	}
}
