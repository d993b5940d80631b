package activation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/backoff"
	"github.com/sandlane/sandlane/routecache"
)

// readyTimeout bounds one call of a Ready. With the look at the cache just before
// it, it keeps the call away from the address's next pod: an address rests three
// seconds after its fence (docs/design/design.md 4.2).
const readyTimeout = 2 * time.Second

// Ready makes the pod that a claim has landed on ready for its sandbox: one try,
// which a later one may repeat, also at another gateway. It must give up when ctx
// is done. An ErrUnusable says that there is no use trying again; after it the
// sandbox has to be ended, by the Ready itself or by the caller that set Make. An
// ErrNotReady says that it will not help this request to try again: it fails, and
// the sandbox is left as it is. An ErrAgain says that it has come further, and wants to
// be called again at once.
type Ready func(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error

// Make is what a sandbox is that no first request makes. Each request has one of
// its own, so that no two share an activation.
type Make struct {
	Timeouts v1alpha1.SandboxTimeouts
	// Idle says what timeouts.idle is on a pod of a pool: members of an env may differ.
	// Nil: that of Timeouts.
	Idle     func(pool string) *metav1.Duration
	Metadata map[string]string
	Network  v1alpha1.SandboxNetwork
	// Owner is the ID of the API key that asked for it; empty if none is known.
	Owner string
	// Ready is called in place of Options.Ready, by this request's activation alone.
	Ready Ready

	tried atomic.Bool
}

// timeouts are the sandbox's on a pod of the pool.
func (m *Make) timeouts(pool string) v1alpha1.SandboxTimeouts {
	t := m.Timeouts
	if m.Idle != nil {
		t.Idle = m.Idle(pool)
	}
	return t
}

// Tried reports whether a write was begun that may have made the sandbox.
func (m *Make) Tried() bool { return m.tried.Load() }

// finish makes the sandbox's pod ready and caches the route to it. A Put that is
// refused means that the sandbox changed meanwhile: the caller resolves again.
func (act *activation) finish(token routecache.Token, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
	r := act.route(s, pod)
	if r == nil {
		return nil
	}
	act.noteStarted()
	ready := act.a.o.Ready
	if act.Make != nil {
		ready = act.Make.Ready
	}
	if ready != nil {
		try := func(ctx context.Context) error { return ready(ctx, s, pod) }
		if err := act.makeReady(token, r, try); err != nil {
			return err
		}
	}
	act.a.o.Cache.Put(token, r)
	return nil
}

// noteStarted notes that the pod of this activation's claim has started.
func (act *activation) noteStarted() {
	if !act.starts.IsZero() {
		act.a.o.Metrics.phase(phaseReady, time.Since(act.starts))
		act.starts = time.Time{}
	}
}

// route returns the route to a pod that runs the sandbox; nil if it cannot be
// reached.
func (act *activation) route(s *v1alpha1.Sandbox, pod *corev1.Pod) *routecache.Route {
	addr, err := netip.ParseAddr(v1alpha1.FencedAddress(pod))
	if err != nil {
		return nil
	}
	rv, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if err != nil {
		return nil
	}
	claimID := pod.Annotations[v1alpha1.AnnotationClaim]
	r := &routecache.Route{
		SandboxID: act.ID, Pool: routecache.PoolOf(pod.Namespace, s.Spec.Pool), ClaimID: claimID, PodUID: string(pod.UID),
		Addr: addr, PodRV: rv, Private: s.Spec.Network.Private,
		Guarded: v1alpha1.RunsSandboxd(&pod.Spec) && !s.Spec.Network.Unsecured, Stamp: act.a.o.Stamp(act.ID, claimID),
	}
	if r.Private || !v1alpha1.GeneratedID(act.ID) {
		r.TokenUID = new(s.UID)
	}
	return r
}

// makeReady tries until the pod is ready, refuses, is no longer the sandbox's, or
// the activation's time is up.
func (act *activation) makeReady(token routecache.Token, r *routecache.Route, try func(context.Context) error) error {
	began := time.Now()
	for pauses := backoff.Doubling(retryMin, retryMax); ; {
		stands := act.a.o.Cache.Admits(token, r)
		err := errReadAgain
		if stands {
			err = act.tryReady(try)
		}
		switch {
		case err == nil:
			act.a.o.Metrics.phase(phaseInit, time.Since(began))
			return nil
		case errors.Is(err, ErrUnusable), errors.Is(err, ErrNotReady):
			return err
		case errors.Is(err, ErrAgain) && act.ctx.Err() == nil:
			pauses = backoff.Doubling(retryMin, retryMax)
		case !stands && backoff.Sleep(act.ctx, act.rereads.Step()):
			return errReadAgain
		case !stands, !backoff.Sleep(act.ctx, pauses.Step()):
			return fmt.Errorf("%w: %w", ErrNotReady, err)
		}
	}
}

func (act *activation) tryReady(try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(act.ctx, readyTimeout)
	defer cancel()
	return try(ctx)
}
