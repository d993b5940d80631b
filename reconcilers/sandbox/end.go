package sandbox

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/reconcilers/internal/resync"
	"github.com/sandlane/sandlane/reconcilers/podstate"
)

// carryOutEnd carries an end out, as far as it gets without waiting. The steps:
//
//  1. Capture: take the address and the stop record from a live read of the pod, and tell
//     the ledger the address. If the status does not have the address of this claim yet
//     (the sandbox never ran), write it now, with status Ending.
//  2. Stop: write phase stopping to the pod, testing that the pod carries the claim, or that
//     it is idle without a claim; either way no claim PATCH is applied to it any more. The
//     same write puts the stop record on the pod and removes its finalizer, unless its pool
//     may use the pod again. If the write is refused, the pod has changed since it was read:
//     begin again at 1.
//  3. Fence: call Fence with the address and the resourceVersion of that write, or of a pod
//     list that lacks the pod, in a goroutine of its own; its answer queues the sandbox. If a
//     gateway does not answer, call Fence again after 1, 2, 4 … 15 s. An end that waits for
//     gateways reads nothing; after 200 ms it writes status Ending with what was captured,
//     so that the pool reconciler can delete the pod.
//  4. Ended: write status Ended with all of that and fencedAt; then tell the ledger.
//  5. Keep the Sandbox object for its TTL, then delete it. A deleted Sandbox keeps its
//     finalizer until it is Ended and the ledger's cooldown has passed, so that a new controller
//     learns from the API what its predecessor knew.
//
// A crash between any two steps leaves a state from which the next process does the same
// step again; each is idempotent. Between 2 and 4 only the pod has the stop record: if the
// pod goes too, only the reason of the end and the pod's name are known. A sandbox that never
// had a pod skips 2 and 3.
func (r *Reconciler) carryOutEnd(ctx context.Context, s *v1alpha1.Sandbox) (ctrl.Result, error) {
	if s.Status.Phase == v1alpha1.SandboxEnded {
		r.fences.forget(fenceKey{id: s.Name})
		if served(s) && s.Status.FencedAt != nil {
			r.Ledger.NoteFencedInStatus(s.Spec.Binding.ClaimID)
		}
		result, err := r.keepRecord(ctx, s)
		if err == nil { // the fence of a pod that a pause gave up may still be open
			result.RequeueAfter = resync.Sooner(result.RequeueAfter, r.fences.retryFormer(s.Name, s.UID))
		}
		return result, err
	}
	f, begun := r.fences.progress(fenceKey{id: s.Name}, s.UID)
	if !begun {
		return r.stopAndFence(ctx, s)
	}
	if f.done {
		failpoint.Hit("sandbox/fenced") // every gateway has acknowledged the fence, the status does not say so
		return r.markEnded(ctx, s, f.record)
	}
	former := r.fences.retryFormer(s.Name, s.UID)
	if s.Status.Phase != v1alpha1.SandboxEnding {
		if f.age < quickFence {
			return ctrl.Result{RequeueAfter: resync.Sooner(min(f.wait, quickFence-f.age), former)}, nil
		}
		if _, err := r.markEnding(ctx, s, f.record); err != nil {
			return retryIfMoved(err)
		}
	}
	return ctrl.Result{RequeueAfter: resync.Sooner(f.wait, former)}, nil
}

// stopAndFence does steps 1 and 2 of an end and begins step 3.
func (r *Reconciler) stopAndFence(ctx context.Context, s *v1alpha1.Sandbox) (ctrl.Result, error) {
	failpoint.Hit("sandbox/ending") // the end is written, no step of it is done
	switch {
	case !r.mayHaveFormerClaims(s):
	case s.Spec.Binding != nil:
		if err := r.stopFormerPods(ctx, s); err != nil {
			return retryIfMoved(err)
		}
	default: // the sandbox hibernates: its pause gave pods up
		wait, err := r.endFormerClaims(ctx, s)
		if err == nil && wait > quickFence && s.Status.Phase != v1alpha1.SandboxEnding {
			_, err = r.markEnding(ctx, s, r.capture(s, nil)) // the gateways may take long to answer
		}
		if err != nil || wait > 0 {
			result, err := retryIfMoved(err)
			result.RequeueAfter = resync.Sooner(result.RequeueAfter, wait)
			return result, err
		}
	}
	pod, err := boundPod(ctx, r.APIReader, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	rec := r.capture(s, pod)
	if rec.address != s.Status.Address || rec.claim != s.Status.AddressClaim {
		if s, err = r.markEnding(ctx, s, rec); err != nil {
			return retryIfMoved(err)
		}
	}
	failpoint.Hit("sandbox/recorded") // the status has the address, the pod runs
	rv, err := r.stop(ctx, s, rec, pod)
	if err != nil {
		return retryIfMoved(err)
	}
	failpoint.Hit("sandbox/stopped") // the pod is stopping, no gateway was told yet
	if rec.address == "" || s.Status.FencedAt != nil {
		return r.markEnded(ctx, s, rec)
	}
	addr, err := netip.ParseAddr(rec.address)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("the sandbox's address: %w", err)
	}
	r.fences.begin(fenceKey{id: s.Name}, openFence{of: s.UID, addr: addr, rv: rv, byName: rec.byName, record: rec})
	return ctrl.Result{RequeueAfter: quickFence}, nil
}

// record is what must be known after the pod is gone. It is taken before the pod is stopped.
type record struct {
	// address is to be fenced, and claim is the claim that has or had it.
	address, claim string
	byName         bool // of address
	stop           *v1alpha1.StopRecord
}

// capture returns the record of the sandbox and its pod, which may be nil, and tells the
// ledger the pod's address.
func (r *Reconciler) capture(s *v1alpha1.Sandbox, pod *corev1.Pod) record {
	rec := record{address: s.Status.Address, claim: s.Status.AddressClaim, byName: s.Status.AddressByName, stop: s.Status.Stop}
	if pod != nil && v1alpha1.Backs(pod, s) {
		addr := pod.Annotations[v1alpha1.AnnotationAddress]
		r.Ledger.NoteClaim(s.Spec.Binding.ClaimID, s.Name, addr)
		// Also if the pod's address has changed since: it may have served at this one before.
		if addr != "" {
			rec.address, rec.claim, rec.byName = addr, s.Spec.Binding.ClaimID, isByName(pod)
		}
		if rec.stop == nil {
			rec.stop = podstate.CaptureSandboxStopRecord(pod, s.Spec.End)
		}
	}
	if rec.stop == nil && served(s) {
		rec.stop = podstate.RecordWithoutPod(s.Spec.Binding.PodName, s.Spec.End)
	}
	return rec
}

// with returns a copy of the Sandbox whose status has the record and the phase, Ending or
// Ended.
func (rec record) with(s *v1alpha1.Sandbox, phase v1alpha1.SandboxPhase) *v1alpha1.Sandbox {
	next := s.DeepCopy()
	next.Status.Phase, next.Status.Reason = phase, string(s.Spec.End.Reason)
	setAddress(next, rec.address, rec.claim, rec.byName)
	next.Status.Stop = rec.stop
	if next.Status.EndedAt == nil {
		at := s.Spec.End.At
		next.Status.EndedAt = &at
	}
	return next
}

// markEnding writes status Ending with the record, before the fence is acknowledged. It
// returns the Sandbox as written.
func (r *Reconciler) markEnding(ctx context.Context, s *v1alpha1.Sandbox, rec record) (*v1alpha1.Sandbox, error) {
	next := rec.with(s, v1alpha1.SandboxEnding)
	setReady(next)
	if err := r.writeStatus(ctx, s, next); err != nil {
		return nil, err
	}
	if s.Status.Phase != v1alpha1.SandboxEnding {
		r.reportEnd(next)
	}
	return next, nil
}

// reportEnd counts the end, and writes an Event with the reason if the sandbox failed.
func (r *Reconciler) reportEnd(s *v1alpha1.Sandbox) {
	end := s.Spec.End
	r.Metrics.ended(s)
	if end.Reason != v1alpha1.EndFailed && end.Reason != v1alpha1.EndStartupTimeout {
		return // spec.end says enough
	}
	note := string(end.Reason)
	if end.Message != "" {
		note += ": " + end.Message
	}
	r.event(s, corev1.EventTypeWarning, "Ended", "End", "%s", note)
}

// markEnded writes status Ended with the record and fencedAt, and then tells the ledger: if
// the write fails, the address stays taken and the write is tried again. It does not tell
// the ledger about the address of a former claim, whose pod may still run: the sweep stops
// that pod.
func (r *Reconciler) markEnded(ctx context.Context, s *v1alpha1.Sandbox, rec record) (ctrl.Result, error) {
	next := rec.with(s, v1alpha1.SandboxEnded)
	if rec.address != "" && next.Status.FencedAt == nil {
		now := metav1.NewMicroTime(r.now())
		next.Status.FencedAt = &now
	}
	setReady(next)
	if err := r.writeStatus(ctx, s, next); err != nil {
		return retryIfMoved(err)
	}
	failpoint.Hit("sandbox/ended") // fencedAt is written, the ledger does not know it yet
	if s.Status.Phase != v1alpha1.SandboxEnding {
		r.reportEnd(next)
	}
	if served(next) {
		r.Ledger.NoteFenced(s.Spec.Binding.ClaimID, rec.address)
	}
	return r.keepRecord(ctx, next)
}

// keepRecord keeps the object of an ended sandbox as long as the SandboxStore says, and then
// deletes it. It keeps the finalizer of a deleted object until the address has been out of
// use for the ledger's cooldown.
func (r *Reconciler) keepRecord(ctx context.Context, s *v1alpha1.Sandbox) (ctrl.Result, error) {
	now := r.now()
	if s.DeletionTimestamp == nil && r.written.isDeleted(s) {
		return ctrl.Result{}, nil // the event of the deletion queues the sandbox
	}
	if s.DeletionTimestamp == nil {
		if r.SandboxStore != nil {
			if err := r.SandboxStore.Save(ctx, s); err != nil {
				return ctrl.Result{}, fmt.Errorf("saving the record: %w", err)
			}
			if left := r.SandboxStore.Keep(s, now); left > 0 {
				return ctrl.Result{RequeueAfter: left}, nil
			}
		}
		err := r.Client.Delete(ctx, s, client.Preconditions{UID: &s.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return ctrl.Result{}, fmt.Errorf("deleting the record: %w", err)
		}
		if err == nil {
			r.written.noteDeleted(s)
		}
		return ctrl.Result{}, nil
	}
	if s.Status.FencedAt != nil {
		if age := now.Sub(s.Status.FencedAt.Time); age >= 0 && age < r.Ledger.Cooldown() {
			return ctrl.Result{RequeueAfter: r.Ledger.Cooldown() - age}, nil
		}
	}
	if !controllerutil.ContainsFinalizer(s, v1alpha1.FinalizerSandbox) {
		return ctrl.Result{}, nil
	}
	failpoint.Hit("sandbox/forgetting") // all is done, the object has its finalizer
	err := r.patch(ctx, s, writes.For(s.UID).RemoveFinalizer(s.Finalizers, v1alpha1.FinalizerSandbox))
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("removing the finalizer: %w", err)
	}
	failpoint.Hit("sandbox/forgotten") // the finalizer is removed
	return ctrl.Result{}, nil
}
