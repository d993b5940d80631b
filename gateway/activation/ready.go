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
// seconds after its fence (docs/design 4.2).
const readyTimeout = 2 * time.Second

// Ready makes the pod that a claim has landed on ready for its sandbox: one try,
// which a later one may repeat, also at another gateway. It must give up when ctx
// is done. An ErrUnusable says that there is no use trying again; after it the
// sandbox has to be ended, which is up to the Ready or to who asked for Make. An
// ErrNotReady says that it will not help this request to try again: it fails, and
// the sandbox is left as it is. An ErrAgain says that it has come further, and wants to
// be called again at once.
type Ready func(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error

// Make is what a sandbox is that no first request makes. Each request has one of
// its own, so that no two share a flight.
type Make struct {
	Timeouts v1alpha1.SandboxTimeouts
	// Idle says what timeouts.idle is on a pod of a pool: members of an env may differ.
	// Nil: that of Timeouts.
	Idle     func(pool string) *metav1.Duration
	Metadata map[string]string
	Network  v1alpha1.SandboxNetwork
	// Owner is the ID of the API key that asked for it; empty if none is known.
	Owner string
	// Ready is called in place of Options.Ready, by this request's flight alone.
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
// refused means that it changed meanwhile: whoever asked resolves again.
func (f *flight) finish(token routecache.Token, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
	r := f.route(s, pod)
	if r == nil {
		return nil
	}
	f.runs()
	ready := f.a.o.Ready
	if f.Make != nil {
		ready = f.Make.Ready
	}
	if ready != nil {
		try := func(ctx context.Context) error { return ready(ctx, s, pod) }
		if err := f.makeReady(token, r, try); err != nil {
			return err
		}
	}
	f.a.o.Cache.Put(token, r)
	return nil
}

// runs notes that the pod of this flight's claim has started.
func (f *flight) runs() {
	if !f.starts.IsZero() {
		f.a.o.Metrics.phase(phaseReady, time.Since(f.starts))
		f.starts = time.Time{}
	}
}

// route returns the route to a pod that runs the sandbox; nil if it cannot be
// reached.
func (f *flight) route(s *v1alpha1.Sandbox, pod *corev1.Pod) *routecache.Route {
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
		SandboxID: f.ID, Pool: routecache.PoolOf(pod.Namespace, s.Spec.Pool), ClaimID: claimID, PodUID: string(pod.UID),
		Addr: addr, PodRV: rv, Private: s.Spec.Network.Private,
		Guarded: v1alpha1.RunsSandboxd(&pod.Spec) && !s.Spec.Network.Unsecured, Stamp: f.a.o.Stamp(f.ID, claimID),
	}
	if r.Private || !v1alpha1.GeneratedID(f.ID) {
		r.TokenUID = new(s.UID)
	}
	return r
}

// makeReady tries until the pod is ready, refuses, is no longer the sandbox's, or
// the flight's time is up.
func (f *flight) makeReady(token routecache.Token, r *routecache.Route, try func(context.Context) error) error {
	began := time.Now()
	for pauses := backoff.Doubling(retryMin, retryMax); ; {
		stands := f.a.o.Cache.Admits(token, r)
		err := errLook
		if stands {
			err = f.tryReady(try)
		}
		switch {
		case err == nil:
			f.a.o.Metrics.phase(phaseInit, time.Since(began))
			return nil
		case errors.Is(err, ErrUnusable), errors.Is(err, ErrNotReady):
			return err
		case errors.Is(err, ErrAgain) && f.ctx.Err() == nil:
			pauses = backoff.Doubling(retryMin, retryMax)
		case !backoff.Sleep(f.ctx, pauses.Step()):
			return fmt.Errorf("%w: %w", ErrNotReady, err)
		case !stands:
			return errLook
		}
	}
}

func (f *flight) tryReady(try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(f.ctx, readyTimeout)
	defer cancel()
	return try(ctx)
}
