package sandbox

import (
	"context"
	"fmt"
	"time"

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
	"github.com/sandlane/sandlane/reconcilers/sandboxpool"
)

// end carries an end out, as far as it gets: record, stop, fence, Ended, gone.
func (r *Reconciler) end(ctx context.Context, s *v1alpha1.Sandbox) (ctrl.Result, error) {
	if s.Status.Phase == v1alpha1.SandboxEnded {
		r.fences.forget(s.Name)
		if served(s) && s.Status.FencedAt != nil {
			r.Ledger.FencedOnRecord(s.Spec.Binding.ClaimID)
		}
		return r.keep(ctx, s)
	}
	// One that waits for gateways reads nothing.
	wait, fenced := r.fences.look(s.Name, s.UID)
	if !fenced && wait == 0 {
		var err error
		if s, wait, err = r.close(ctx, s); err != nil {
			return again(err)
		}
	}
	if wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	failpoint.Hit("sandbox/fenced") // every gateway knows, the record does not say so
	s, err := r.markEnded(ctx, s)
	if err != nil {
		return again(err)
	}
	return r.keep(ctx, s)
}

// close records, stops and fences; a wait above 0 is for the fence. It returns
// the Sandbox as written.
func (r *Reconciler) close(ctx context.Context, s *v1alpha1.Sandbox) (*v1alpha1.Sandbox, time.Duration, error) {
	failpoint.Hit("sandbox/ending") // the end is written, nothing of it carried out
	pod, err := boundPod(ctx, r.APIReader, s)
	if err != nil {
		return nil, 0, err
	}
	if s, err = r.record(ctx, s, pod); err != nil {
		return nil, 0, err
	}
	failpoint.Hit("sandbox/recorded") // Ending and the stop record are written, the pod runs
	rv, err := r.stop(ctx, s, pod)
	if err != nil {
		return nil, 0, err
	}
	failpoint.Hit("sandbox/stopped") // the pod is stopping, no gateway was asked
	wait, err := r.fence(ctx, s, rv)
	return s, wait, err
}

// record writes down what must outlive the pod, before anything happens to it.
func (r *Reconciler) record(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) (*v1alpha1.Sandbox, error) {
	next := s.DeepCopy()
	next.Status.Phase = v1alpha1.SandboxEnding
	next.Status.Reason = string(s.Spec.End.Reason)
	ours := pod != nil && v1alpha1.Backs(pod, s)
	if ours {
		r.Ledger.Had(s.Spec.Binding.ClaimID, s.Name, pod.Annotations[v1alpha1.AnnotationAddress])
		// Also one that the pod cannot be reached on any more: it may have been.
		if addr := pod.Annotations[v1alpha1.AnnotationAddress]; addr != "" {
			next.Status.Address, next.Status.AddressClaim = addr, s.Spec.Binding.ClaimID
		}
		if next.Status.Stop == nil {
			next.Status.Stop = sandboxpool.CaptureSandboxStopRecord(pod, s.Spec.End)
		}
	}
	if next.Status.Stop == nil && served(s) {
		next.Status.Stop = sandboxpool.RecordWithoutPod(s.Spec.Binding.PodName, s.Spec.End)
	}
	if next.Status.EndedAt == nil {
		at := s.Spec.End.At
		next.Status.EndedAt = &at
	}
	setReady(next)
	if err := r.writeStatus(ctx, s, next); err != nil {
		return nil, err
	}
	if s.Status.Phase != v1alpha1.SandboxEnding {
		r.tell(next)
	}
	return next, nil
}

// tell says in an Event why the sandbox ended.
func (r *Reconciler) tell(s *v1alpha1.Sandbox) {
	end := s.Spec.End
	kind := corev1.EventTypeNormal
	if end.Reason == v1alpha1.EndFailed || end.Reason == v1alpha1.EndStartupTimeout {
		kind = corev1.EventTypeWarning
	}
	note := string(end.Reason)
	if end.Message != "" {
		note += ": " + end.Message
	}
	r.event(s, kind, "Ended", "End", "%s", note)
	r.Metrics.ended(end.Reason)
}

// markEnded notes that every gateway knows. The ledger learns it after the API:
// if the write fails, the address stays taken and the fence is sent again. It
// does not learn of a former claim's address: that claim's pod may still run, and
// the sweep sees to it.
func (r *Reconciler) markEnded(ctx context.Context, s *v1alpha1.Sandbox) (*v1alpha1.Sandbox, error) {
	next := s.DeepCopy()
	next.Status.Phase = v1alpha1.SandboxEnded
	if s.Status.Address != "" {
		now := metav1.NewMicroTime(r.now())
		next.Status.FencedAt = &now
	}
	setReady(next)
	if err := r.writeStatus(ctx, s, next); err != nil {
		return nil, err
	}
	failpoint.Hit("sandbox/ended") // fencedAt is written, the ledger does not know
	if served(s) {
		r.Ledger.Fenced(s.Spec.Binding.ClaimID, s.Status.Address)
	}
	return next, nil
}

// keep holds the record as long as the store wants it, or, if it was deleted,
// until its address has been out of use for address.Hold.
func (r *Reconciler) keep(ctx context.Context, s *v1alpha1.Sandbox) (ctrl.Result, error) {
	now := r.now()
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
