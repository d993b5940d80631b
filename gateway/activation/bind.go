package activation

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/backoff"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/kubeclient/jsonpatch"
	"github.com/sandlane/sandlane/kubeclient/pausing"
	"github.com/sandlane/sandlane/routecache"
)

// binder writes the binding of one claim request. Only that request's claim
// goroutine uses it; the activation reads sandbox and token after a pod was claimed.
type binder struct {
	*activation
	sandbox  *v1alpha1.Sandbox // as last seen; nil: there is none
	replaces string            // claim ID of the binding that may be replaced
	pool     string            // whose pods are tried
	tried    bool              // a binding was written, or perhaps was: what it names may be claimed by others
	token    routecache.Token  // taken just before the write that was applied, which is the first read: it tests end and binding
	// queued is when the claim began to wait for a pod, bound when the binding was
	// written; the activation reads bound after a pod was claimed.
	queued, bound time.Time
	unfenced      *schedule.Claim // on the pod that the old binding names, which may not be reached: to be ended once the binding is replaced
}

// bind makes the sandbox's binding name the pod: step 2 of the claim protocol.
// Every write is conditional, and tells by the claim ID in it whether it was
// applied, so one whose answer was lost is followed by a look.
func (b *binder) bind(ctx context.Context, pod *corev1.Pod) error {
	if s := b.sandbox; s != nil && s.Spec.Restore != nil && b.a.o.Fits != nil {
		if err := b.a.o.Fits(ctx, s, client.ObjectKeyFromObject(pod)); err != nil {
			return fmt.Errorf("restore sandbox %s in pod %s: %w", b.ID, pod.Name, err)
		}
	}
	b.waiting.Store(nil)
	b.tried = true
	began := time.Now()
	b.a.o.Metrics.phase(phaseQueue, began.Sub(b.queued))
	err := b.writeUntilKnown(ctx, schedule.BindingOf(pod))
	if err == nil {
		b.bound = time.Now()
		b.a.o.Metrics.phase(phaseCreate, b.bound.Sub(began))
	}
	replaced := err == nil || errors.Is(err, schedule.ErrBindLost)
	if claim := b.unfenced; replaced && claim != nil {
		b.unfenced = nil
		b.end(ctx, *claim)
	}
	return err
}

func (b *binder) writeUntilKnown(ctx context.Context, want *v1alpha1.Binding) error {
	for pauses := backoff.Doubling(retryMin, retryMax); ; {
		b.token = b.a.o.Cache.Begin(b.ID)
		s, err := b.write(ctx, want)
		if err == nil {
			b.sandbox, b.replaces = s, want.ClaimID
			return nil
		}
		v := jsonpatch.Judge(err)
		switch {
		case v.Final():
			return fmt.Errorf("bind sandbox %s: %w", b.ID, final(err))
		case !stale(v) && !backoff.Sleep(ctx, backoff.Asked(err, pauses.Step())):
			return unavailable(err)
		}
		if done, err := b.checkBinding(ctx, want); done || err != nil {
			return err
		}
		// What was read allows the write that was refused: it changed meanwhile, or
		// what refused it is no condition of the write and stays (a webhook that says
		// 409, a CRD that is missing).
		if stale(v) && !backoff.Sleep(ctx, backoff.Asked(err, pauses.Step())) {
			return unavailable(err)
		}
	}
}

// lost notes that the activation waits for the next pod; the binding to the last one
// stands.
func (b *binder) lost() {
	b.queued = time.Now()
	b.markWaiting(b.replaces)
}

// checkBinding reads the sandbox after a write that failed; done if the write was applied
// after all.
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
	if s.Spec.Paused && !b.Resume.resumes(s) {
		return false, schedule.ErrBindLost
	}
	switch has := s.Spec.Binding; {
	case has == nil:
		b.replaces = ""
	case *has == *want:
		b.replaces = want.ClaimID
		return true, nil
	case has.ClaimID != b.replaces:
		return false, schedule.ErrBindLost
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
			if m.Owner != "" {
				s.Annotations = map[string]string{v1alpha1.AnnotationOwner: m.Owner}
			}
		} else {
			s.Spec.Timeouts = b.a.o.Timeouts(b.Namespace, b.pool)
		}
		return s, b.a.o.Client.Create(ctx, s)
	}
	p := jsonpatch.For(b.sandbox.UID).
		Test("/metadata/deletionTimestamp", nil).
		Test("/spec/end", nil)
	if b.replaces == "" {
		p = p.Test("/spec/binding", nil)
	} else {
		p = p.Test("/spec/binding/claimID", b.replaces)
	}
	switch {
	case v1alpha1.Hibernated(b.sandbox):
		p = pausing.Rebind(p, b.sandbox, b.Resume.endAt())
	case b.sandbox.Spec.Restore != nil: // it may hibernate again since
		p = p.Test("/metadata/generation", b.sandbox.Generation)
		if end := b.Resume.endAt(); end != nil && b.Resume.UID == b.sandbox.UID && b.sandbox.Spec.Timeouts.EndAt != nil {
			p = p.Set("/spec/timeouts/endAt", end) // it counts from the binding that stands
		}
	}
	if b.sandbox.Spec.Pool != b.pool { // of an env: the pool changes with the binding, and in no other write
		p = b.setIdle(p.Set("/spec/pool", b.pool))
	}
	return s, b.a.o.Client.Patch(ctx, s, p.Set("/spec/binding", want).Build())
}

// setIdle changes timeouts.idle to what it is on a pod of the pool, where this activation
// makes the sandbox.
func (b *binder) setIdle(p jsonpatch.Patch) jsonpatch.Patch {
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

// end stops a pod that no sandbox names any more. If it fails, the sweep does.
func (b *binder) end(ctx context.Context, claim schedule.Claim) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := schedule.StopClaimed(ctx, b.a.o.Client, claim)
	if err != nil && !errors.Is(err, schedule.ErrRefused) && !errors.Is(err, schedule.ErrPodGone) {
		b.a.o.Log.Warn("pod that may not be reached is left to the sweep", "pod", claim.PodName, "error", err)
	}
}

// unbind removes the binding to the pod, unless it was replaced or the sandbox
// has ended. The claim cannot land on that pod any more, whichever process sends it.
func (b *binder) unbind(ctx context.Context, pod *corev1.Pod) error {
	s := &v1alpha1.Sandbox{}
	s.Name = b.ID
	patch := jsonpatch.Patch{}.
		Test("/spec/end", nil).
		Test("/spec/binding/claimID", schedule.BindingOf(pod).ClaimID).
		Remove("/spec/binding").
		Build()
	for pauses := backoff.Doubling(retryMin, retryMax); ; {
		err := b.tryPatch(ctx, s, patch)
		switch v := jsonpatch.Judge(err); {
		case v == jsonpatch.Applied, v == jsonpatch.TestFailed, v == jsonpatch.Gone: // a conflict says nothing of the binding
			return nil
		case v.Final(), !backoff.Sleep(ctx, backoff.Asked(err, pauses.Step())):
			return fmt.Errorf("unbind sandbox %s: %w", b.ID, err)
		}
	}
}

func (b *binder) tryPatch(ctx context.Context, s *v1alpha1.Sandbox, patch client.Patch) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return b.a.o.Client.Patch(ctx, s, patch)
}
