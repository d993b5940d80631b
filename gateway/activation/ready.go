package activation

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
)

// readyTimeout bounds one call of a Ready. Just before the call the cache admits the route.
// Both together keep the call away from the address's next pod: after its fence an address
// serves no sandbox for at least 8 s (docs/design/design.md 4.2).
const readyTimeout = 2 * time.Second

// Ready makes a claimed pod ready for its sandbox. A call is one try, which may be repeated,
// also at another gateway. It must return when ctx is done. VerdictOf its error is what
// follows.
type Ready func(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error

// Make says how a sandbox is made that a create of the REST API asks for, and no first
// request. Each request has a Make of its own, so that no two share an activation.
type Make struct {
	Timeouts v1alpha1.SandboxTimeouts
	// Idle returns timeouts.idle of the sandbox on a pod of the pool: members of an env may
	// differ. If it is nil, Timeouts has it.
	Idle     func(pool string) *metav1.Duration
	Metadata map[string]string
	Network  v1alpha1.SandboxNetwork
	Egress   *v1alpha1.SandboxEgress
	// Owner is the ID of the API key that asked for the sandbox; empty if none is known.
	Owner string
	// Snapshot is the ID of the snapshot that the sandbox begins with; empty: none.
	Snapshot string
	// Internet: all outgoing connections were asked for by name.
	Internet bool
	// Ready is called in place of Options.Ready, and only by this request's activation.
	Ready Ready

	tried atomic.Bool
}

// timeouts returns the timeouts of the sandbox on a pod of the pool.
func (m *Make) timeouts(pool string) v1alpha1.SandboxTimeouts {
	t := m.Timeouts
	if m.Idle != nil {
		t.Idle = m.Idle(pool)
	}
	return t
}

// annotations returns those of the sandbox.
func (m *Make) annotations() map[string]string {
	all := map[string]string{v1alpha1.AnnotationOwner: m.Owner, v1alpha1.AnnotationSnapshot: m.Snapshot}
	if m.Internet {
		all[v1alpha1.AnnotationInternet] = "true"
	}
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}

// Tried reports whether a create was sent, so that the sandbox may have been made.
func (m *Make) Tried() bool { return m.tried.Load() }

// finish makes the sandbox's pod ready and puts the route to it into the cache. If the cache
// refuses the route, the sandbox may have changed meanwhile: the caller resolves again.
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

// noteStarted notes that the pod that this activation claimed has started.
func (act *activation) noteStarted() {
	if !act.startingSince.IsZero() {
		act.a.o.Metrics.observePhase(phaseReady, time.Since(act.startingSince))
		act.startingSince = time.Time{}
	}
}

// route returns the route to a pod that runs the sandbox; nil if it cannot be
// reached.
func (act *activation) route(s *v1alpha1.Sandbox, pod *corev1.Pod) *routecache.Route {
	addr, err := netip.ParseAddr(v1alpha1.RoutableAddress(pod))
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
		Guarded: v1alpha1.RunsSandboxd(&pod.Spec) && !s.Spec.Network.Unsecured, Use: act.a.o.ClaimUse(act.ID, claimID),
	}
	if r.Private || !v1alpha1.GeneratedID(act.ID) {
		r.TokenUID = new(s.UID)
	}
	return r
}

// makeReady calls try until the pod is ready or refuses, the pod may belong to another
// sandbox (errReadAgain), or the activation gives up.
func (act *activation) makeReady(token routecache.Token, r *routecache.Route, try func(context.Context) error) error {
	began := time.Now()
	for delays := backoff.Doubling(retryMin, retryMax); ; {
		admitted := act.a.o.Cache.Admits(token, r)
		err := errReadAgain
		if admitted {
			err = act.tryReady(try)
		}
		switch verdict := VerdictOf(err); {
		case err == nil:
			act.a.o.Metrics.observePhase(phaseInit, time.Since(began))
			return nil
		case verdict == EndSandbox:
			return fmt.Errorf("%w: %w", routing.ErrUnusable, err)
		case verdict == FailRequest:
			return fmt.Errorf("%w: %w", ErrNotReady, err)
		case verdict == TryNow && act.ctx.Err() == nil:
			delays = backoff.Doubling(retryMin, retryMax)
		case !admitted && backoff.Sleep(act.ctx, act.rereads.Step()):
			return errReadAgain
		case !admitted, !backoff.Sleep(act.ctx, delays.Step()):
			return fmt.Errorf("%w: %w", ErrNotReady, err)
		}
	}
}

func (act *activation) tryReady(try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(act.ctx, readyTimeout)
	defer cancel()
	return try(ctx)
}
