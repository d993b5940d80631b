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
	"github.com/sandlane/sandlane/kubeclient/jsonpatch"
	"github.com/sandlane/sandlane/reconcilers/address"
	"github.com/sandlane/sandlane/reconcilers/podstate"
)

// end carries an end out, as far as it gets: stop, fence, Ended, gone. The steps:
//
//  1. Capture: address and stop record, from a live read of the pod. The ledger
//     knows the address first. If the status does not have the address of this
//     claim yet (it never ran), it is written now, with status Ending.
//  2. Stop: pod to stopping, testing the claim, or phase idle and no claim;
//     either way no claim PATCH can land any more. The stop record is written to
//     the pod, whose finalizer goes unless its pool may use it again. Refused: the
//     pod has changed since it was read, begin again at 1.
//  3. Fence(address, resourceVersion of that write, or of a pod list that lacks
//     the pod), beside the workers; the answer queues the sandbox. Unanswered: asked
//     again after 1, 2, 4 … 15 s. An end that waits for gateways reads nothing;
//     after 200 ms it writes status Ending with what was captured, so that the
//     pool reconciler can delete the pod.
//  4. Ended: status Ended with all of that and fencedAt; then the ledger.
//  5. The record stays for its TTL; then it is deleted. A deleted Sandbox keeps
//     its finalizer until it is Ended and address.Hold has passed, so that a new
//     controller learns from the API what its predecessor knew.
//
// A crash between any two steps leaves a state from which the next process does
// the same step again; each is idempotent. After 2 the stop record is the pod's;
// if the pod goes as well before 4, only why and where it stopped is known. A sandbox that never had a pod skips
// 2 and 3.
func (r *Reconciler) end(ctx context.Context, s *v1alpha1.Sandbox) (ctrl.Result, error) {
	if s.Status.Phase == v1alpha1.SandboxEnded {
		r.fences.forget(fenceKey{id: s.Name})
		if served(s) && s.Status.FencedAt != nil {
			r.Ledger.FencedOnRecord(s.Spec.Binding.ClaimID)
		}
		result, err := r.keep(ctx, s)
		if err == nil { // a gateway may not have answered yet about a pod that a pause gave up
			result.RequeueAfter = sooner(result.RequeueAfter, r.fences.former(s.Name, s.UID))
		}
		return result, err
	}
	// An end that waits for its fence reads nothing.
	f, begun := r.fences.progress(fenceKey{id: s.Name}, s.UID)
	if !begun {
		return r.close(ctx, s)
	}
	if f.done {
		failpoint.Hit("sandbox/fenced") // every gateway knows, the record does not say so
		return r.markEnded(ctx, s, f.record)
	}
	if s.Status.Phase != v1alpha1.SandboxEnding {
		if f.age < quickFence {
			return ctrl.Result{RequeueAfter: min(f.wait, quickFence-f.age)}, nil
		}
		if _, err := r.markEnding(ctx, s, f.record); err != nil {
			return again(err)
		}
	}
	return ctrl.Result{RequeueAfter: f.wait}, nil
}

// close stops the pod and asks for the fence. What the status must say before the
// pod can go is written first, if it does not say so already.
func (r *Reconciler) close(ctx context.Context, s *v1alpha1.Sandbox) (ctrl.Result, error) {
	failpoint.Hit("sandbox/ending")                     // the end is written, nothing of it carried out
	if s.Spec.Restore != nil && s.Spec.Binding == nil { // pods that its pause gave up
		wait, err := r.letPodsGo(ctx, s)
		if err == nil && wait > quickFence && s.Status.Phase != v1alpha1.SandboxEnding {
			_, err = r.markEnding(ctx, s, r.capture(s, nil)) // gateways may take long
		}
		if err != nil || wait > 0 {
			result, err := again(err)
			result.RequeueAfter = sooner(result.RequeueAfter, wait)
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
			return again(err)
		}
	}
	failpoint.Hit("sandbox/recorded") // the address is on record, the pod runs
	rv, err := r.stop(ctx, s, rec, pod)
	if err != nil {
		return again(err)
	}
	failpoint.Hit("sandbox/stopped") // the pod is stopping, no gateway was asked
	if rec.address == "" || s.Status.FencedAt != nil {
		return r.markEnded(ctx, s, rec)
	}
	addr, err := netip.ParseAddr(rec.address)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("the sandbox's address: %w", err)
	}
	r.fences.begin(fenceKey{id: s.Name}, openFence{of: s.UID, addr: addr, rv: rv, record: rec})
	return ctrl.Result{RequeueAfter: quickFence}, nil
}

// record is what must outlive the pod, taken before the pod is stopped.
type record struct {
	// address is the one to be fenced, and claim the claim that has or had it.
	address, claim string
	stop           *v1alpha1.StopRecord
}

// capture takes what must outlive the pod; the ledger knows its address from here
// on.
func (r *Reconciler) capture(s *v1alpha1.Sandbox, pod *corev1.Pod) record {
	rec := record{address: s.Status.Address, claim: s.Status.AddressClaim, stop: s.Status.Stop}
	if pod != nil && v1alpha1.Backs(pod, s) {
		addr := pod.Annotations[v1alpha1.AnnotationAddress]
		r.Ledger.Had(s.Spec.Binding.ClaimID, s.Name, addr)
		// Also if the pod cannot be reached there any more: it may have served there before.
		if addr != "" {
			rec.address, rec.claim = addr, s.Spec.Binding.ClaimID
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

// with returns a copy of the Sandbox whose status says that it is over, and how far
// that has been carried out.
func (rec record) with(s *v1alpha1.Sandbox, phase v1alpha1.SandboxPhase) *v1alpha1.Sandbox {
	next := s.DeepCopy()
	next.Status.Phase, next.Status.Reason = phase, string(s.Spec.End.Reason)
	setAddress(next, rec.address, rec.claim)
	next.Status.Stop = rec.stop
	if next.Status.EndedAt == nil {
		at := s.Spec.End.At
		next.Status.EndedAt = &at
	}
	return next
}

// markEnding writes the record down before the fence is acknowledged. It returns
// the Sandbox as written.
func (r *Reconciler) markEnding(ctx context.Context, s *v1alpha1.Sandbox, rec record) (*v1alpha1.Sandbox, error) {
	next := rec.with(s, v1alpha1.SandboxEnding)
	setReady(next)
	if err := r.writeStatus(ctx, s, next); err != nil {
		return nil, err
	}
	if s.Status.Phase != v1alpha1.SandboxEnding {
		r.tell(next)
	}
	return next, nil
}

// tell counts the end, and says in an Event why a sandbox failed.
func (r *Reconciler) tell(s *v1alpha1.Sandbox) {
	end := s.Spec.End
	r.Metrics.ended(s)
	if end.Reason != v1alpha1.EndFailed && end.Reason != v1alpha1.EndStartupTimeout {
		return // spec.end says as much
	}
	note := string(end.Reason)
	if end.Message != "" {
		note += ": " + end.Message
	}
	r.event(s, corev1.EventTypeWarning, "Ended", "End", "%s", note)
}

// markEnded writes the record, or what the status lacks of it, and fencedAt.
// The ledger learns it after the API: if the write fails, the address stays taken
// and the write is tried again. It does not learn of a former claim's address: that
// claim's pod may still run, and the sweep sees to it.
func (r *Reconciler) markEnded(ctx context.Context, s *v1alpha1.Sandbox, rec record) (ctrl.Result, error) {
	next := rec.with(s, v1alpha1.SandboxEnded)
	if rec.address != "" && next.Status.FencedAt == nil {
		now := metav1.NewMicroTime(r.now())
		next.Status.FencedAt = &now
	}
	setReady(next)
	if err := r.writeStatus(ctx, s, next); err != nil {
		return again(err)
	}
	failpoint.Hit("sandbox/ended") // fencedAt is written, the ledger does not know
	if s.Status.Phase != v1alpha1.SandboxEnding {
		r.tell(next)
	}
	if served(next) {
		r.Ledger.Fenced(s.Spec.Binding.ClaimID, rec.address)
	}
	return r.keep(ctx, next)
}

// keep holds the record as long as the store wants it, or, if it was deleted,
// until its address has been out of use for address.Hold.
func (r *Reconciler) keep(ctx context.Context, s *v1alpha1.Sandbox) (ctrl.Result, error) {
	now := r.now()
	if s.DeletionTimestamp == nil && r.written.isDeleted(s) {
		return ctrl.Result{}, nil // the delete's event asks again
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
		if age := now.Sub(s.Status.FencedAt.Time); age >= 0 && age < address.Hold {
			return ctrl.Result{RequeueAfter: address.Hold - age}, nil
		}
	}
	if !controllerutil.ContainsFinalizer(s, v1alpha1.FinalizerSandbox) {
		return ctrl.Result{}, nil
	}
	failpoint.Hit("sandbox/forgetting") // nothing is left to do but the finalizer
	err := r.patch(ctx, s, jsonpatch.For(s.UID).RemoveFinalizer(s.Finalizers, v1alpha1.FinalizerSandbox))
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("removing the finalizer: %w", err)
	}
	failpoint.Hit("sandbox/forgotten") // the Sandbox object goes
	return ctrl.Result{}, nil
}
