package sandbox

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/address"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool"
)

// sweeper finds claims that nobody owns. It runs on the leader; one goroutine
// uses it.
type sweeper struct {
	r *Reconciler
	// seen are the claims that the last sweep found without an owner.
	seen map[string]struct{}
}

// Start sweeps until ctx is done.
func (w *sweeper) Start(ctx context.Context) error {
	ticker := time.NewTicker(w.r.SweepInterval)
	defer ticker.Stop()
	for {
		if err := w.sweep(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "the sweep failed; it is tried again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// NeedLeaderElection is true: only the leader ends claims.
func (w *sweeper) NeedLeaderElection() bool { return true }

// stray is a claim without an owner. pod is nil if there is none any more.
type stray struct {
	claim, address string
	pod            *corev1.Pod
}

// sweep ends the strays of this sweep that the one before found too.
func (w *sweeper) sweep(ctx context.Context) error {
	strays, err := w.find(ctx)
	if err != nil {
		return err // what the last sweep saw stays: the next two must agree anyway
	}
	before := w.seen
	w.seen = make(map[string]struct{}, len(strays))
	for _, s := range strays {
		w.seen[s.claim] = struct{}{}
		if _, twice := before[s.claim]; !twice {
			continue
		}
		if err := w.release(ctx, s); err != nil {
			log.FromContext(ctx).Error(err, "ending a claim that no sandbox owns", "claim", s.claim)
			continue
		}
		w.r.Metrics.swept()
	}
	return nil
}

// find lists pods first, then Sandboxes: a claim is written with or after its
// binding, but for fresh IDs, where both are on their way at once; that is what
// the second look is for.
func (w *sweeper) find(ctx context.Context) ([]stray, error) {
	pods := map[types.UID]*corev1.Pod{}
	claims := map[string]struct{}{}
	if err := address.EachPod(ctx, w.r.APIReader, func(pod *corev1.Pod) {
		if claim := pod.Annotations[v1alpha1.AnnotationClaim]; claim != "" {
			pods[pod.UID] = pod.DeepCopy()
			claims[claim] = struct{}{}
		}
	}); err != nil {
		return nil, err
	}
	owned := map[string]struct{}{}
	if err := address.EachSandbox(ctx, w.r.APIReader, func(s *v1alpha1.Sandbox) {
		b := s.Spec.Binding
		if b == nil {
			return
		}
		if pod := pods[types.UID(b.PodUID)]; pod == nil || owns(s, pod) {
			owned[b.ClaimID] = struct{}{}
		}
	}); err != nil {
		return nil, err
	}
	var strays []stray
	for _, pod := range pods {
		claim := pod.Annotations[v1alpha1.AnnotationClaim]
		if _, ok := owned[claim]; !ok && !w.r.Ledger.SafelyFenced(claim) {
			strays = append(strays, stray{claim, pod.Annotations[v1alpha1.AnnotationAddress], pod})
		}
	}
	for _, held := range w.r.Ledger.Unfenced() {
		_, hasPod := claims[held.ClaimID]
		if _, ok := owned[held.ClaimID]; !ok && !hasPod {
			strays = append(strays, stray{claim: held.ClaimID, address: held.Address})
		}
	}
	return strays, nil
}

// owns: the sandbox sees to the pod's end, or has. One that is Ended and does
// not know the pod's address, or whose pod still runs, does not. It is pure.
func owns(s *v1alpha1.Sandbox, pod *corev1.Pod) bool {
	if !v1alpha1.Backs(pod, s) {
		return false
	}
	if s.Status.Phase != v1alpha1.SandboxEnded {
		return true
	}
	phase := v1alpha1.PhaseOf(pod)
	return served(s) && s.Status.Address == pod.Annotations[v1alpha1.AnnotationAddress] &&
		(phase == v1alpha1.PodStopping || phase == v1alpha1.PodFailed || pod.DeletionTimestamp != nil)
}

// release stops the stray's pod and fences its address. The pool reconciler then
// lets the pod go. It is done again by the next sweep if a step fails.
func (w *sweeper) release(ctx context.Context, s stray) error {
	log.FromContext(ctx).Info("ending a claim that no sandbox owns", "claim", s.claim, "address", s.address)
	var rv uint64
	var err error
	if s.pod == nil {
		rv, err = w.r.podListRV(ctx)
	} else {
		rv, err = releasePod(ctx, w.r.Client, s.pod, sandboxpool.ReleaseSandboxPodOptions{
			StopReason: v1alpha1.StopCanceled, FailureReason: "NoSandbox", FailureMessage: "no sandbox owns this claim",
		})
	}
	if err != nil {
		return err
	}
	if s.address == "" {
		return nil // never reachable
	}
	addr, err := netip.ParseAddr(s.address)
	if err != nil {
		return fmt.Errorf("the claim's address: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, w.r.FenceTimeout)
	defer cancel()
	if err := w.r.Fencer.Fence(ctx, addr, rv); err != nil {
		return fmt.Errorf("fencing %s: %w", addr, err)
	}
	w.r.Ledger.Fenced(s.claim, s.address)
	return nil
}
