package sandbox

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// writeLive writes the status of a sandbox that has not ended. It returns how long until it
// is to be called again, and the Sandbox as written. While a first claim is on its way to
// its pod it writes nothing, since the next status follows at once.
//
// # A new binding after a claim that was applied
//
// A claim PATCH may be applied to a pod whose address has changed. No gateway routes to that
// pod, it is stopped, and the sandbox gets another binding. status.address is then the
// address of the former claim (addressClaim says so); it does not mean that the sandbox has
// lost its pod and must end (served). The address of the current claim's pod is written only
// while gateways can route to it, or at the end. The former pod carries its claim, so it
// shows its address, and it keeps its finalizer until that claim is fenced, which the sweep
// does: status.address may be overwritten before that.
func (r *Reconciler) writeLive(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod, d decision) (recheck time.Duration, written *v1alpha1.Sandbox, err error) {
	if s.Status.Phase == "" && s.Spec.Binding != nil && d.phase == v1alpha1.SandboxPending && d.step == stepNone {
		return 0, s, nil
	}
	next := s.DeepCopy()
	if d.step != stepEnd {
		next.Status.Phase = d.phase
	}
	backed := pod != nil && v1alpha1.Backs(pod, s)
	if backed {
		// The ledger counts the address as taken in any case. The status gets it only while
		// the pod can serve there; it replaces the address of a former claim, whose pod keeps
		// its finalizer until the sweep has fenced it.
		r.Ledger.NoteClaim(s.Spec.Binding.ClaimID, s.Name, pod.Annotations[v1alpha1.AnnotationAddress])
		if addr := v1alpha1.RoutableAddress(pod); addr != "" {
			setAddress(next, addr, s.Spec.Binding.ClaimID, isByName(pod))
		}
		if v1alpha1.PhaseOf(pod) == v1alpha1.PodRunning && next.Status.StartedAt == nil {
			next.Status.StartedAt = r.startedAt(pod)
		}
		if v1alpha1.PhaseOf(pod) == v1alpha1.PodRunning && d.step != stepEnd {
			recheck = r.enforcePause(s, next)
		}
		setInplaceUpdated(next, pod)
	}
	r.setHibernating(s, next)
	setPaused(next)
	setReady(next)
	if err := r.writeStatus(ctx, s, next); err != nil {
		return 0, nil, err
	}
	return recheck, next, nil
}

// setAddress sets the address in the status, the claim that it belongs to, and whether
// egress is asked for its fences. With another
// claim it removes fencedAt, which was about the claim before.
func setAddress(s *v1alpha1.Sandbox, addr, claim string, byName bool) {
	if s.Status.AddressClaim != claim {
		s.Status.FencedAt = nil
	}
	s.Status.Address, s.Status.AddressClaim, s.Status.AddressByName = addr, claim, byName
}

// writeStatus writes the status of next, if it differs from that of was. The patch carries
// the resourceVersion of was, so that the API server refuses it if the Sandbox has changed
// since. next becomes the Sandbox as written.
func (r *Reconciler) writeStatus(ctx context.Context, was, next *v1alpha1.Sandbox) error {
	if equality.Semantic.DeepEqual(was.Status, next.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, next, patch); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	r.written.note(next)
	return nil
}

// startedAt returns when the pod turned running, by the pod's annotations if it has them.
func (r *Reconciler) startedAt(pod *corev1.Pod) *metav1.Time {
	at := r.now()
	for _, key := range []string{v1alpha1.AnnotationStartedAt, v1alpha1.AnnotationClaimedAt} {
		if noted, err := time.Parse(time.RFC3339Nano, pod.Annotations[key]); err == nil {
			at = noted
			break
		}
	}
	t := metav1.NewTime(at)
	return &t
}

// setReady sets the condition Ready and observedGeneration by the phase.
func setReady(s *v1alpha1.Sandbox) {
	s.Status.ObservedGeneration = s.Generation
	c := metav1.Condition{
		Type: v1alpha1.SandboxConditionReady, ObservedGeneration: s.Generation,
		Status: metav1.ConditionFalse, Reason: string(s.Status.Phase),
	}
	if s.Status.Phase == v1alpha1.SandboxRunning {
		c.Status = metav1.ConditionTrue
	}
	if c.Reason == "" {
		c.Reason = string(v1alpha1.SandboxPending)
	}
	if startFailed(s) {
		c.Reason, c.Message = v1alpha1.ReasonStartContainerFailed, s.Spec.End.Message
	}
	meta.SetStatusCondition(&s.Status.Conditions, c)
}
