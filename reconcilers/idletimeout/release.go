package idletimeout

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

const (
	// releaseBatch is how many releases are prepared at a time: few enough that
	// their requests are held for moments only.
	releaseBatch = 100
	// releaseWriters is how many of a batch's writes are under way at a time.
	releaseWriters = 16
)

// Preparer is what a source may add. A source without it is polled once more when the token
// of a release is on the Sandbox: Sandlane's gateways hold what comes after that, and other
// ways to a sandbox must do so too, or a use in the moment before the end is not seen.
type Preparer interface {
	// PrepareRelease asks every gateway to hold new requests of the claims, and
	// returns the IDs of the sandboxes that are in use. An error means that some
	// gateway could not tell.
	PrepareRelease(ctx context.Context, releases []controlplane.Release) (inUse map[string]bool, err error)
}

// polling is the Preparer of a source that has none: what it hears is judged afterwards, by
// LastActive.
type polling struct{ LastActiveSource }

func (p polling) PrepareRelease(ctx context.Context, _ []controlplane.Release) (map[string]bool, error) {
	return nil, p.Poll(ctx)
}

// pending is a release whose token is on the Sandbox, once begun.
type pending struct {
	claim   *tracked // nil for one that is called off alone
	sandbox *v1alpha1.Sandbox
	controlplane.Release
	begun bool
}

// release takes the candidates through the steps 4 to 6 of releaseIdle, batch by batch.
// When a step of a check fails:
//
//	begin not answered    the next check finds the token, if any, and takes it away
//	begin refused         the sandbox is another's by now, or has ended
//	prepare fails         called off; nothing is released for idleness
//	commit refused        called off by a gateway, or ended by another
//	commit not answered   it was applied, or lands while the token stands: the next
//	                      check takes that away
//	this process ends     the next one takes the tokens away; until then gateways
//	                      do, for the requests that they let wait
//
// Only the process that wrote a token commits with it, and only in the same
// check: a controller that was suspended is refused once its successor has looked. Kept
// in memory are when each claim was first seen and when its lastActive was last written;
// a new leader begins without them and so waits at least a timeout more.
// All state belongs to the one goroutine of Start, but for the Sandboxes that the
// watch has shown since the last check (feed).
func (r *IdleTimeoutReconciler) release(ctx context.Context, candidates []*tracked, timeouts *timeouts) error {
	preparer, ok := r.source.(Preparer)
	if !ok {
		preparer = polling{r.source}
	}
	for batch := range slices.Chunk(candidates, releaseBatch) {
		if err := r.releaseBatch(ctx, preparer, batch, timeouts); err != nil {
			return err
		}
	}
	return nil
}

func (r *IdleTimeoutReconciler) releaseBatch(ctx context.Context, preparer Preparer, batch []*tracked, timeouts *timeouts) error {
	begun, beginErr := r.begin(ctx, batch, timeouts)
	if len(begun) == 0 {
		return beginErr
	}
	failpoint.Hit("idletimeout/begun") // tokens stand, no gateway was asked
	asked := make([]controlplane.Release, len(begun))
	for i := range begun {
		asked[i] = begun[i].Release
	}
	inUse, err := preparer.PrepareRelease(ctx, asked)
	if err != nil {
		return errors.Join(fmt.Errorf("asking the gateways to prepare: %w", err), r.callOff(ctx, begun), beginErr)
	}
	// A gateway that went meanwhile took with it what it knew.
	still, err := r.pick(ctx, batch, timeouts)
	if err != nil {
		return errors.Join(err, r.callOff(ctx, begun), beginErr)
	}
	var commit, off []pending
	for _, p := range begun {
		if inUse[p.SandboxID] || !slices.Contains(still, p.claim) {
			off = append(off, p)
		} else {
			commit = append(commit, p)
		}
	}
	failpoint.Hit("idletimeout/prepared") // every gateway holds, no end is written
	return errors.Join(beginErr, r.commit(ctx, commit), r.callOff(ctx, off))
}

// begin writes the tokens and returns the releases that have begun. A sandbox that has
// changed is left out, and so is one whose write failed: should it have been applied, the next check
// finds the token.
func (r *IdleTimeoutReconciler) begin(ctx context.Context, batch []*tracked, timeouts *timeouts) ([]pending, error) {
	all := make([]pending, len(batch))
	for i, t := range batch {
		s := t.sandbox
		_, idle, err := timeouts.of(ctx, s)
		if err != nil {
			return nil, err
		}
		all[i] = pending{claim: t, sandbox: s, Release: controlplane.Release{
			SandboxID: s.Name, ClaimID: s.Spec.Binding.ClaimID, Token: string(uuid.NewUUID()), Idle: idle,
		}}
	}
	err := each(len(all), func(i int) error {
		p := &all[i]
		err := r.patch(ctx, p.sandbox, writes.For(p.sandbox.UID).
			Test("/metadata/deletionTimestamp", nil).Test("/spec/end", nil).Test("/spec/binding/claimID", p.ClaimID).
			Test("/metadata/generation", p.sandbox.Generation). // it may have been paused since
			Set("/spec/release", v1alpha1.Release{Token: p.Token, ClaimID: p.ClaimID}))
		p.begun = err == nil
		if err != nil && !writes.Moved(err) {
			return fmt.Errorf("beginning the release of sandbox %s: %w", p.SandboxID, err)
		}
		return nil
	})
	return slices.DeleteFunc(all, func(p pending) bool { return !p.begun }), err
}

// commit writes the ends, or the pauses, each if its release has not been called off.
func (r *IdleTimeoutReconciler) commit(ctx context.Context, all []pending) error {
	return r.each(all, func(p pending) error {
		if r.Pauser != nil {
			if paused, err := r.Pauser.PauseIdle(ctx, p.sandbox, p.Token); err != nil || paused {
				return err
			}
		}
		return r.end(ctx, p.sandbox, v1alpha1.EndIdleTimeout, fmt.Sprintf("not used for %s", p.Idle), writes.OfRelease(p.Token), writes.NotRestoring())
	})
}

// callOff takes the tokens off again. Where that fails, the next check does it,
// or a gateway whose request has waited long enough.
func (r *IdleTimeoutReconciler) callOff(ctx context.Context, all []pending) error {
	return r.each(all, func(p pending) error {
		err := r.patch(ctx, p.sandbox, writes.For(p.sandbox.UID).
			Test("/spec/end", nil).Test("/spec/release/token", p.Token).Remove("/spec/release"))
		if err != nil && !writes.Moved(err) {
			return fmt.Errorf("calling off the release of sandbox %s: %w", p.SandboxID, err)
		}
		r.Metrics.calledOff()
		return nil
	})
}

// callOffLeftovers takes away the tokens that some check before this one left:
// another controller's, or this one's that a write failed for. What the last
// check has dealt with may still show in the cache.
func (r *IdleTimeoutReconciler) callOffLeftovers(ctx context.Context) error {
	var left []pending
	lagging := map[string]struct{}{}
	for _, s := range r.claims.releasing {
		token := s.Spec.Release.Token
		if _, known := r.dealt[token]; known {
			lagging[token] = struct{}{}
			continue
		}
		left = append(left, pending{sandbox: s, Release: controlplane.Release{SandboxID: s.Name, Token: token}})
	}
	r.dealt = lagging
	if len(left) == 0 {
		return nil
	}
	log.FromContext(ctx).Info("idle releases that were begun before are called off", "releases", len(left))
	return r.callOff(ctx, left)
}

func (r *IdleTimeoutReconciler) patch(ctx context.Context, s *v1alpha1.Sandbox, p writes.Patch) error {
	out := &v1alpha1.Sandbox{}
	out.Name = s.Name
	return r.client.Patch(ctx, out, p.Build())
}

// each writes for all. What succeeded is dealt with, though the cache may show its
// token for a while.
func (r *IdleTimeoutReconciler) each(all []pending, write func(pending) error) error {
	done := make([]bool, len(all))
	err := each(len(all), func(i int) error {
		err := write(all[i])
		done[i] = err == nil
		return err
	})
	for i, ok := range done {
		if ok {
			r.dealt[all[i].Token] = struct{}{}
		}
	}
	return err
}

// each calls f for 0 to n-1, releaseWriters at a time, whatever fails.
func each(n int, f func(i int) error) error {
	errs := make([]error, n)
	var writers errgroup.Group
	writers.SetLimit(releaseWriters)
	for i := range n {
		writers.Go(func() error { errs[i] = f(i); return nil })
	}
	_ = writers.Wait()
	return errors.Join(errs...)
}
