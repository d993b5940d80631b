// Package holds makes requests for a sandbox wait while it is held for an idle release, and
// calls off a release that takes too long: the record of the sandbox then decides whether it
// is in use or has ended. A request that waits has no answer from the sandbox meanwhile.
// Make the [Holds] with New and give them to extproc, which calls Await for each request of a
// claim that is held, and to the control-plane server, which has releases prepared.
package holds

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/gateway/inuse"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
)

// maxHeld is how long a claim's requests wait for its idle release before the
// gateway calls it off.
const maxHeld = 2 * time.Second

// Holds are the claims that one gateway holds. Make it with New. Safe for concurrent use.
type Holds struct {
	usage   *inuse.Registry
	poller  *inuse.EnvoyPoller
	cache   *routecache.Cache
	client  client.Client
	settled singleflight.Group // by ID and claim
}

// New returns the Holds of the claims that the registry says are held. Routes of sandboxes
// that turn out to have ended are taken out of the cache.
func New(usage *inuse.Registry, poller *inuse.EnvoyPoller, cache *routecache.Cache, c client.Client) *Holds {
	return &Holds{usage: usage, poller: poller, cache: cache, client: c}
}

// Prepare implements controlplane.Releaser. It holds all claims of the batch, and then
// looks once what is in use, so that it sees a request that was answered before the hold.
func (h *Holds) Prepare(ctx context.Context, releases []controlplane.Release) (inUse []string, known bool) {
	for _, one := range releases {
		h.usage.Hold(one.SandboxID, one.ClaimID, one.Token)
	}
	// Envoy, too, answers no more requests by itself when it is asked what is open.
	for _, one := range releases {
		h.cache.Retract(one.SandboxID)
	}
	if err := h.cache.WaitMirror(ctx); err != nil {
		return nil, false
	}
	if err := h.poller.Refresh(ctx); err != nil {
		return nil, false
	}
	for _, one := range releases {
		if h.usage.InUse(one.SandboxID, one.ClaimID, one.Idle) {
			inUse = append(inUse, one.SandboxID)
		}
	}
	return inUse, true
}

// Await implements extproc.Holds. A claim that is not held any more is in use or has
// ended: extproc resolves again to find out.
func (h *Holds) Await(ctx context.Context, id, claim string) error {
	held, ok := h.usage.HeldNow(id, claim)
	if !ok {
		return nil
	}
	if backoff.SleepOrWake(ctx, maxHeld-held.Age, held.Lifted) {
		return nil
	}
	for delays := backoff.Doubling(50*time.Millisecond, time.Second); ctx.Err() == nil; {
		done := h.settled.DoChan(id+"/"+claim, func() (any, error) { return nil, h.callOff(id, claim) })
		select {
		case result := <-done:
			if result.Err == nil || errors.Is(result.Err, routing.ErrNotFound) {
				return result.Err
			}
		case <-held.Lifted:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if backoff.SleepOrWake(ctx, delays.Step(), held.Lifted) {
			return nil
		}
	}
	return ctx.Err()
}

// callOff takes the token off the Sandbox, whichever it is: after that no release
// that is held now can be carried out. nil means that the claim is not held any
// more; ErrNotFound, that the sandbox has ended; another error, that the outcome is not
// known.
func (h *Holds) callOff(id, claim string) error {
	held, ok := h.usage.HeldNow(id, claim)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxHeld)
	defer cancel()
	s := &v1alpha1.Sandbox{}
	s.Name = id
	err := h.client.Patch(ctx, s, writes.Patch{}.Test("/spec/end", nil).Remove("/spec/release").Build())
	switch writes.Judge(err) {
	case writes.Applied:
		h.usage.Lift(id, claim, held.Tokens...)
		return nil
	case writes.Gone, writes.TestFailed, writes.Invalid:
		return h.outcome(ctx, id, claim, held.Tokens)
	}
	return fmt.Errorf("calling off the idle release of sandbox %s: %w", id, err)
}

// outcome reads what became of the releases.
func (h *Holds) outcome(ctx context.Context, id, claim string, tokens []string) error {
	s := &v1alpha1.Sandbox{}
	err := h.client.Get(ctx, types.NamespacedName{Name: id}, s)
	switch {
	case apierrors.IsNotFound(err), err == nil && (s.Spec.End != nil || s.DeletionTimestamp != nil):
		h.cache.Invalidate(id)
		return routing.ErrNotFound
	case err != nil:
		return fmt.Errorf("reading what became of the idle release of sandbox %s: %w", id, err)
	case s.Spec.Binding == nil || s.Spec.Binding.ClaimID != claim:
		h.cache.Invalidate(id) // and no request is held for the claim once the watch shows it
		return errors.New("the sandbox is bound anew")
	case s.Spec.Release != nil:
		return errors.New("another idle release has begun")
	case s.Spec.Paused: // by another gateway, which called the release off with that
		h.cache.Invalidate(id)
	}
	h.usage.Lift(id, claim, tokens...)
	return nil
}
