package sandbox

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/failpoint"
	"github.com/sandlane/sandlane/reconcilers/internal/resync"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool"
)

// restorePatience is how long a resume may take to restore the sandbox's files. It is longer
// than requests wait for a resume. After that the resume is taken back.
const restorePatience = 5 * time.Minute

// decideRestoring decides about a resumed sandbox whose files are not restored yet. It has
// not run since its pause, so no timeout ends it. Where another sandbox would end, its resume
// is taken back, and its files stay kept. Its end time counts once it runs.
func decideRestoring(v view) decision {
	d := decidePod(v)
	back := func(reason string) decision {
		return decision{phase: v1alpha1.SandboxResuming, step: stepRehibernate, message: reason}
	}
	left := restorePatience - v.restoringFor
	switch {
	case d.step == stepEnd:
		return back(d.message)
	case left <= 0:
		return back("its files were not restored in time")
	}
	d.phase = v1alpha1.SandboxResuming
	d.recheck = resync.Sooner(d.recheck, left)
	return d
}

// setHibernating notes in next, the object to be written, that a sandbox hibernates or that its
// files are being restored.
func (r *Reconciler) setHibernating(s, next *v1alpha1.Sandbox) {
	switch {
	case v1alpha1.Hibernated(s):
		r.setPause(s, next, v1alpha1.ReasonHibernated, false)
	case v1alpha1.Restoring(s):
		r.setPause(s, next, v1alpha1.ReasonResuming, false)
	}
}

// former is a claim that a sandbox had before. pod is nil if its pod is gone.
type former struct {
	address string // empty if no gateway could ever route to the pod
	pod     *corev1.Pod
}

// mayHaveFormerClaims reports whether endFormerClaims may find a claim. A sandbox that waits
// for its first pod has none: a claim that names it is the one that it is about to get.
func (r *Reconciler) mayHaveFormerClaims(s *v1alpha1.Sandbox) bool {
	if s.Spec.Binding == nil {
		return s.Spec.Restore != nil
	}
	return r.orphanCandidates.has(s.Name)
}

// endFormerClaims ends the former claims of a sandbox that hibernates or is bound anew. They
// were given up by a pause, or by a resume that was taken back, perhaps between two
// reconciles of this process. It stops each of their pods and fences its address, as at an
// end. The pod keeps its claim, and keeps its finalizer until the claim is fenced, so that
// the sweep completes what a crash interrupts. wait is how long until the next step; 0 if
// nothing is left to do.
func (r *Reconciler) endFormerClaims(ctx context.Context, s *v1alpha1.Sandbox) (wait time.Duration, err error) {
	if s.Status.FencedAt == nil {
		r.Ledger.NoteClaim(s.Status.AddressClaim, s.Name, s.Status.Address)
	}
	claims, err := r.formerClaims(ctx, s)
	if err != nil {
		return 0, err
	}
	if len(claims) == 0 && s.Spec.Binding == nil {
		return r.markFenced(ctx, s)
	}
	return r.endClaims(ctx, s, claims)
}

// stopFormerPods ends those former claims of a sandbox that is bound anew and ends whose pods
// the cache shows: what a pause has frozen there keeps the requests waiting that it has got.
// The end does not wait for their fences. Other former claims are the sweep's.
func (r *Reconciler) stopFormerPods(ctx context.Context, s *v1alpha1.Sandbox) error {
	claims, err := r.formerClaims(ctx, s)
	if err != nil {
		return err
	}
	maps.DeleteFunc(claims, func(_ string, f former) bool { return f.pod == nil })
	_, err = r.endClaims(ctx, s, claims)
	return err
}

// endClaims ends claims that the sandbox had before. wait is how long until the next step; 0
// if nothing is left to do.
func (r *Reconciler) endClaims(ctx context.Context, s *v1alpha1.Sandbox, claims map[string]former) (wait time.Duration, err error) {
	if len(claims) == 0 {
		return 0, nil
	}
	// A claim on a pod may belong to a new binding that the cache does not show yet, so read
	// the sandbox. A claim is bound before it is on a pod, and is never bound again after its
	// binding was removed.
	live := &v1alpha1.Sandbox{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s), live); err != nil {
		return 0, fmt.Errorf("reading the sandbox: %w", err)
	}
	if live.UID != s.UID {
		return retrySoon, nil
	}
	for claim, f := range claims {
		if live.Spec.Binding != nil && live.Spec.Binding.ClaimID == claim {
			wait = resync.Sooner(wait, retrySoon)
			continue
		}
		next, err := r.endFormerClaim(ctx, s, claim, f)
		if err != nil {
			return 0, err
		}
		wait = resync.Sooner(wait, next)
	}
	return wait, nil
}

// formerClaims returns the claims that the sandbox had before, as far as their pods or the
// ledger show, and whose pods are not stopped or whose addresses are not fenced.
func (r *Reconciler) formerClaims(ctx context.Context, s *v1alpha1.Sandbox) (map[string]former, error) {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(s.Spec.Namespace), client.MatchingFields{indexSandboxID: s.Name}); err != nil {
		return nil, fmt.Errorf("listing the pods that name the sandbox: %w", err)
	}
	claims := map[string]former{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		claim, addr := pod.Annotations[v1alpha1.AnnotationClaim], pod.Annotations[v1alpha1.AnnotationAddress]
		// A pod that the cache did not show when its claim was fenced must still be stopped.
		if claim == "" || stopped(pod) && (addr == "" || r.Ledger.IsFenced(claim)) {
			continue
		}
		r.Ledger.NoteClaim(claim, s.Name, addr)
		claims[claim] = former{addr, pod}
	}
	for _, held := range r.Ledger.UnfencedOf(s.Name) {
		if _, there := claims[held.ClaimID]; !there {
			claims[held.ClaimID] = former{address: held.Address}
		}
	}
	if s.Spec.Binding != nil {
		delete(claims, s.Spec.Binding.ClaimID)
	}
	return claims, nil
}

func stopped(pod *corev1.Pod) bool {
	phase := v1alpha1.PhaseOf(pod)
	return phase == v1alpha1.PodStopping || phase == v1alpha1.PodFailed || pod.DeletionTimestamp != nil
}

// endFormerClaim stops the pod of one former claim, and begins the fence of its address.
func (r *Reconciler) endFormerClaim(ctx context.Context, s *v1alpha1.Sandbox, claim string, f former) (wait time.Duration, err error) {
	key := fenceKey{s.Name, claim}
	if v, begun := r.fences.progress(key, s.UID); begun {
		return max(v.wait, retrySoon), nil
	}
	var rv uint64
	switch {
	case f.pod == nil:
		rv, err = r.podListRV(ctx)
	case stopped(f.pod):
		rv, err = parseRV(f.pod.ResourceVersion)
	default:
		failpoint.Hit("sandbox/giving-up") // the files are kept, the pod runs
		rv, err = releasePod(ctx, r.Client, f.pod, sandboxpool.ReleaseSandboxPodOptions{StopReason: v1alpha1.StopReleased, DisableRetry: true})
	}
	if err != nil || f.address == "" {
		return 0, err
	}
	addr, err := netip.ParseAddr(f.address)
	if err != nil {
		return 0, fmt.Errorf("the claim's address: %w", err)
	}
	r.fences.begin(key, openFence{of: s.UID, addr: addr, rv: rv, byName: isByName(f.pod), onDone: func() {
		r.Ledger.NoteFenced(claim, f.address)
		r.fences.forget(key)
	}})
	return quickFence, nil
}

// markFenced writes fencedAt for the address that the status has from a former claim, once
// the ledger says that the address is fenced.
func (r *Reconciler) markFenced(ctx context.Context, s *v1alpha1.Sandbox) (wait time.Duration, err error) {
	if s.Status.Address == "" || s.Status.FencedAt != nil || !r.Ledger.IsFenced(s.Status.AddressClaim) {
		return 0, nil
	}
	next := s.DeepCopy()
	next.Status.FencedAt = new(metav1.NewMicroTime(r.now()))
	return retrySoon, r.writeStatus(ctx, s, next)
}
