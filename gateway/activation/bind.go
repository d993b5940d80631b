package activation

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routecache"
)

// binder writes the binding of one claim request. Only that request's claim
// goroutine uses it; the activation reads sandbox, token and bound after a pod was claimed, or
// once no claim can be under way, and tried at any time: at its deadline a request is answered
// while its claim may be about to write.
type binder struct {
	*activation
	sandbox  *v1alpha1.Sandbox // as last read; nil if there is none
	replaces string            // claim ID of the binding that may be replaced
	pool     string            // the pool whose pods are tried
	// egress is what a sandbox gets that is made on a pod of it, as the pod's label says.
	egress *v1alpha1.SandboxEgress
	tried  atomic.Bool      // a binding was written, or may have been: other processes may complete its claim
	token  routecache.Token // taken just before the write that was applied; the write counts as the read that the token is for, since it tests end and binding
	// queued is when the claim began to wait for a pod, and bound when the binding was
	// written.
	queued, bound time.Time
	// unroutable is the claim of the pod that the old binding names, if that pod's address must
	// not be used: bind stops that pod once the binding is replaced.
	unroutable *schedule.Claim
}

// bind makes the sandbox's binding name the pod: step 2 of the claim protocol. Every write
// is conditional. If its answer is lost, bind reads the sandbox, and the claim ID in the
// binding shows whether the write was applied.
func (b *binder) bind(ctx context.Context, pod *corev1.Pod) error {
	if s := b.sandbox; s != nil && s.Spec.Restore != nil && b.a.o.Fits != nil {
		if err := b.a.o.Fits(ctx, s, client.ObjectKeyFromObject(pod)); err != nil {
			return fmt.Errorf("restore sandbox %s in pod %s: %w", b.ID, pod.Name, err)
		}
	}
	b.waiting.Store(nil)
	b.tried.Store(true)
	began := time.Now()
	b.a.o.Metrics.observePhase(phaseQueue, began.Sub(b.queued))
	err := b.writeUntilKnown(ctx, schedule.BindingOf(pod))
	if err == nil {
		b.bound = time.Now()
		b.a.o.Metrics.observePhase(phaseCreate, b.bound.Sub(began))
	}
	replaced := err == nil || errors.Is(err, writes.ErrStale)
	if claim := b.unroutable; replaced && claim != nil {
		b.unroutable = nil
		b.stopPod(ctx, *claim)
	}
	return err
}

func (b *binder) writeUntilKnown(ctx context.Context, want *v1alpha1.Binding) error {
	for delays := backoff.Doubling(retryMin, retryMax); ; {
		b.token = b.a.o.Cache.Begin(b.ID)
		s, err := b.write(ctx, want)
		if err == nil {
			b.sandbox, b.replaces = s, want.ClaimID
			return nil
		}
		v := writes.Judge(err)
		switch {
		case v.Final():
			return fmt.Errorf("bind sandbox %s: %w", b.ID, finalError(err))
		case !conditionFailed(v) && !backoff.Sleep(ctx, backoff.Asked(err, delays.Step())):
			return unavailable(err)
		}
		if done, err := b.checkBinding(ctx, want); done || err != nil {
			return err
		}
		// The sandbox that was read meets the conditions of the refused write: either it has
		// changed between the two, or the write was refused for a reason that is no condition
		// of it and may last (a webhook that answers 409, a CRD that is missing).
		if conditionFailed(v) && !backoff.Sleep(ctx, backoff.Asked(err, delays.Step())) {
			return unavailable(err)
		}
	}
}

// lost notes that the claim lost its pod and waits for the next one; the binding to the lost
// pod stays for now.
func (b *binder) lost() {
	b.queued = time.Now()
	b.markWaiting(b.replaces)
}

// checkBinding reads the sandbox after a write that failed; done is true if the write was
// applied after all.
func (b *binder) checkBinding(ctx context.Context, want *v1alpha1.Binding) (done bool, err error) {
	s := &v1alpha1.Sandbox{}
	err = b.read(ctx, client.ObjectKey{Name: b.ID}, s)
	switch {
	case errors.Is(err, errGone) && b.New:
		b.sandbox, b.replaces = nil, ""
		return false, nil
	case err != nil:
		return false, err
	}
	if err := b.admit(s); err != nil {
		return false, err
	}
	b.sandbox = s
	if s.Spec.Paused && !b.resumes(s) {
		return false, writes.ErrStale
	}
	switch has := s.Spec.Binding; {
	case has == nil:
		b.replaces = ""
	case *has == *want:
		b.replaces = want.ClaimID
		return true, nil
	case has.ClaimID != b.replaces:
		return false, writes.ErrStale
	}
	return false, nil
}

// write sends one conditional write: create, first binding, or replacement.
func (b *binder) write(ctx context.Context, want *v1alpha1.Binding) (*v1alpha1.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s := &v1alpha1.Sandbox{}
	s.Name = b.ID
	if b.sandbox == nil {
		s.Finalizers = []string{v1alpha1.FinalizerSandbox}
		s.Spec = v1alpha1.SandboxSpec{
			Namespace: b.Namespace, Env: b.Env, Pool: b.pool, Team: b.Team, CreatedAt: new(metav1.NowMicro()),
			FirstRequest: b.Make == nil, Binding: want,
		}
		if m := b.Make; m != nil {
			m.tried.Store(true)
			s.Spec.Timeouts, s.Spec.Metadata, s.Spec.Network = m.timeouts(b.pool), m.Metadata, m.Network
			s.Spec.Egress = m.Egress
			s.Annotations = m.annotations()
		} else {
			s.Spec.Timeouts, s.Spec.Egress = b.a.o.Timeouts(b.Namespace, b.pool), b.egress
		}
		return s, b.a.o.Client.Create(ctx, s)
	}
	p := writes.For(b.sandbox.UID).
		Test("/metadata/deletionTimestamp", nil).
		Test("/spec/end", nil)
	if b.replaces == "" {
		p = p.Test("/spec/binding", nil)
	} else {
		p = p.Test("/spec/binding/claimID", b.replaces)
	}
	switch {
	case v1alpha1.Hibernated(b.sandbox):
		p = writes.Rebind(p, b.sandbox, b.endAt())
	case b.sandbox.Spec.Restore != nil: // the sandbox may have begun to hibernate again, which the generation shows
		p = p.Test("/metadata/generation", b.sandbox.Generation)
		if end := b.endAt(); end != nil && b.Resume.UID == b.sandbox.UID && b.sandbox.Spec.Timeouts.EndAt != nil {
			p = p.Set("/spec/timeouts/endAt", end) // the lifetime counts from the binding with which the sandbox runs
		}
	}
	if b.sandbox.Spec.Pool != b.pool { // the sandbox has an env: its pool changes with the binding, and in no other write
		p = b.setIdle(p.Set("/spec/pool", b.pool))
	}
	return s, b.a.o.Client.Patch(ctx, s, p.Set("/spec/binding", want).Build())
}

// rules returns the value of LabelRules for a pod of the pool, and notes b.egress.
func (b *binder) rules(pool string) string {
	if s := b.sandbox; s != nil {
		return v1alpha1.ClaimRules(s.Spec.FirstRequest, s.Spec.Egress)
	}
	if b.Make != nil {
		return v1alpha1.ClaimRules(false, b.Make.Egress)
	}
	b.egress = b.a.o.Egress(b.Namespace, pool)
	return v1alpha1.ClaimRules(true, b.egress)
}

// setIdle adds to the patch the timeouts.idle that a sandbox of this request gets on a pod
// of the pool. Without Make.Idle it changes nothing.
func (b *binder) setIdle(p writes.Patch) writes.Patch {
	const path = "/spec/timeouts/idle"
	if b.Make == nil || b.Make.Idle == nil {
		return p
	}
	switch had, idle := b.sandbox.Spec.Timeouts.Idle, b.Make.Idle(b.pool); {
	case idle != nil && (had == nil || *had != *idle):
		return p.Set(path, idle)
	case idle == nil && had != nil:
		return p.Remove(path)
	}
	return p
}

// stopPod stops a pod that no sandbox names any more. If that fails, the controller's sweep
// stops it.
func (b *binder) stopPod(ctx context.Context, claim schedule.Claim) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := schedule.StopClaimed(ctx, b.a.o.Client, claim)
	if err != nil && !errors.Is(err, schedule.ErrRefused) && !errors.Is(err, schedule.ErrPodGone) {
		b.a.o.Log.Warn("stopping a pod that must not be used is left to the controller", "pod", claim.PodName, "error", err)
	}
}

// unbind removes the binding to the pod, unless the binding was replaced or the sandbox has
// ended. The pod accepts the claim from no process any more when unbind is called.
func (b *binder) unbind(ctx context.Context, pod *corev1.Pod) error {
	s := &v1alpha1.Sandbox{}
	s.Name = b.ID
	patch := writes.Patch{}.
		Test("/spec/end", nil).
		Test("/spec/binding/claimID", schedule.BindingOf(pod).ClaimID).
		Remove("/spec/binding").
		Build()
	for delays := backoff.Doubling(retryMin, retryMax); ; {
		err := b.tryPatch(ctx, s, patch)
		switch v := writes.Judge(err); {
		case v == writes.Applied, v == writes.TestFailed, v == writes.Gone: // after a conflict the binding may still be there
			return nil
		case v.Final(), !backoff.Sleep(ctx, backoff.Asked(err, delays.Step())):
			return fmt.Errorf("unbind sandbox %s: %w", b.ID, err)
		}
	}
}

func (b *binder) tryPatch(ctx context.Context, s *v1alpha1.Sandbox, patch client.Patch) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return b.a.o.Client.Patch(ctx, s, patch)
}
