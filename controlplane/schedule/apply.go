package schedule

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// ApplyClaim sends the claim PATCH once and returns the pod as it then is. A
// pod that already carries this claim counts as done, so anyone may send a claim
// again, and several may at a time. Reads go to c, which must not answer them
// from a cache.
//
// Errors: ErrPodTaken, ErrPodGone and ErrRefused (idle by a live read, yet the
// PATCH does not apply), ErrInvalid, ErrForbidden: the claim was not applied.
// ErrThrottled: not applied, come back as apierrors.SuggestsClientDelay says.
// ErrUnavailable: unknown; sending the same claim again finds out. ErrClaimOver:
// applied, and its pod is ending. ErrUnroutable: applied, but the pod must not be reached
// (StopClaimed).
func ApplyClaim(ctx context.Context, c client.Client, claim Claim) (*corev1.Pod, error) {
	pod, _, err := apply(ctx, c, claim)
	return pod, err
}

// apply is ApplyClaim, and says what the answer to the PATCH was.
func apply(ctx context.Context, c client.Client, claim Claim) (*corev1.Pod, writes.Verdict, error) {
	pod := claim.object()
	err := c.Patch(ctx, pod, claim.Patch())
	v := writes.Judge(err)
	switch v {
	case writes.Applied:
		if v1alpha1.Finished(pod) {
			// It was before it was claimed, so it has served no sandbox.
			return pod, v, fmt.Errorf("pod %s/%s was over when it was claimed: %w", pod.Namespace, pod.Name, ErrUnroutable)
		}
		return routable(pod, v)
	case writes.TestFailed:
		return readOwner(ctx, c, claim)
	}
	return nil, v, asError(v, claim.doing(), err)
}

// readOwner reads the pod, live, after a write that tested for idle was refused.
func readOwner(ctx context.Context, c client.Client, claim Claim) (*corev1.Pod, writes.Verdict, error) {
	pod := claim.object()
	if err := c.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		v := writes.Judge(err)
		err = asError(v, claim.doing()+": read which claim it has", err)
		if v != writes.Gone {
			// A transport may have sent the PATCH twice, so the claim may be
			// ours: only the read would have told.
			v = writes.Ambiguous
		}
		return nil, v, err
	}
	switch {
	case claim.On(pod):
		return routable(pod, writes.Applied)
	case pod.UID != claim.PodUID:
		return nil, writes.Gone, asError(writes.Gone, claim.doing(), nil)
	case v1alpha1.PhaseOf(pod) == v1alpha1.PodIdle && pod.DeletionTimestamp == nil:
		return nil, writes.TestFailed, asError(writes.TestFailed, claim.doing(), nil)
	}
	return nil, writes.TestFailed, fmt.Errorf("%s: %w", claim.doing(), ErrPodTaken)
}

// routable passes a claimed pod on if it may be reached, which is on the address
// that was free of former owners when it turned idle, and on no other.
func routable(pod *corev1.Pod, v writes.Verdict) (*corev1.Pod, writes.Verdict, error) {
	switch {
	case v1alpha1.PhaseOf(pod) == v1alpha1.PodStopping, v1alpha1.PhaseOf(pod) == v1alpha1.PodFailed,
		pod.DeletionTimestamp != nil, v1alpha1.Finished(pod):
		// Claimed, and over already: no other sandbox gets it any more.
		return nil, v, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, ErrClaimOver)
	case v1alpha1.RoutableAddress(pod) == "":
		return pod, v, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, ErrUnroutable)
	}
	return pod, v, nil
}

// StopUnclaimed writes the claim's pod to stopping if it is still idle, after
// which no claim can land on it any more. ErrRefused: it was not idle. Other
// errors are those of ApplyClaim.
func StopUnclaimed(ctx context.Context, c client.Client, claim Claim) error {
	return stop(ctx, c, claim, writes.For(claim.PodUID).Test(writes.Phase, v1alpha1.PodIdle))
}

// StopClaimed writes the claim's pod to stopping if it carries the claim:
// no request wants it, or it must not be reached. ErrRefused: it does not carry it.
// Other errors are those of ApplyClaim.
func StopClaimed(ctx context.Context, c client.Client, claim Claim) error {
	return stop(ctx, c, claim, writes.For(claim.PodUID).Test(writes.Claim, claim.ClaimID))
}

func stop(ctx context.Context, c client.Client, claim Claim, guard writes.Patch) error {
	err := c.Patch(ctx, claim.object(), guard.Set(writes.Phase, v1alpha1.PodStopping).Build())
	return asError(writes.Judge(err), "stop pod "+claim.Namespace+"/"+claim.PodName, err)
}

func (c Claim) doing() string { return "claim pod " + c.Namespace + "/" + c.PodName }
