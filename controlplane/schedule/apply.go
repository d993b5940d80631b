package schedule

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
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
// applied once, and over. ErrUnfenced: applied, but the pod must not be reached
// (StopClaimed).
func ApplyClaim(ctx context.Context, c client.Client, claim Claim) (*corev1.Pod, error) {
	pod, _, err := apply(ctx, c, claim)
	return pod, err
}

// apply is ApplyClaim, and says what the answer to the PATCH was.
func apply(ctx context.Context, c client.Client, claim Claim) (*corev1.Pod, verdict, error) {
	pod := claim.object()
	err := c.Patch(ctx, pod, claim.Patch())
	v := judge(err)
	switch v {
	case applied:
		if v1alpha1.Over(pod) {
			// It was before it was claimed, so it has served nobody.
			return pod, v, fmt.Errorf("pod %s/%s was over when it was claimed: %w", pod.Namespace, pod.Name, ErrUnfenced)
		}
		return fenced(pod, v)
	case refused:
		return whose(ctx, c, claim)
	}
	return nil, v, v.asError(claim.doing(), err)
}

// whose reads the pod, live, after a write that tested for idle was refused.
func whose(ctx context.Context, c client.Client, claim Claim) (*corev1.Pod, verdict, error) {
	pod := claim.object()
	if err := c.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		v := judge(err)
		err = v.asError(claim.doing()+": look who has it", err)
		if v != gone {
			// A transport may have sent the PATCH twice, so the claim may be
			// ours: only the read would have told.
			v = ambiguous
		}
		return nil, v, err
	}
	switch {
	case claim.On(pod):
		return fenced(pod, applied)
	case pod.UID != claim.PodUID:
		return nil, gone, gone.asError(claim.doing(), nil)
	case v1alpha1.PhaseOf(pod) == v1alpha1.PodIdle && pod.DeletionTimestamp == nil:
		return nil, refused, refused.asError(claim.doing(), nil)
	}
	return nil, refused, fmt.Errorf("%s: %w", claim.doing(), ErrPodTaken)
}

// fenced passes a claimed pod on if it may be reached, which is on the address
// that was free of former owners when it turned idle, and on no other.
func fenced(pod *corev1.Pod, v verdict) (*corev1.Pod, verdict, error) {
	switch {
	case v1alpha1.PhaseOf(pod) == v1alpha1.PodStopping, v1alpha1.PhaseOf(pod) == v1alpha1.PodFailed,
		pod.DeletionTimestamp != nil, v1alpha1.Over(pod):
		// Claimed, and over already: nobody gets it any more.
		return nil, v, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, ErrClaimOver)
	case v1alpha1.FencedAddress(pod) == "":
		return pod, v, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, ErrUnfenced)
	}
	return pod, v, nil
}

// StopUnclaimed writes the claim's pod to stopping if it is still idle, after
// which no claim can land on it any more. ErrRefused: it was not idle. Other
// errors are those of ApplyClaim.
func StopUnclaimed(ctx context.Context, c client.Client, claim Claim) error {
	return stop(ctx, c, claim, test(labelPath(v1alpha1.LabelPhase), v1alpha1.PodIdle))
}

// StopClaimed writes the claim's pod to stopping if it carries the claim:
// nobody wants it, or it must not be reached. ErrRefused: it does not carry it.
// Other errors are those of ApplyClaim.
func StopClaimed(ctx context.Context, c client.Client, claim Claim) error {
	return stop(ctx, c, claim, test(annotationPath(v1alpha1.AnnotationClaim), claim.ClaimID))
}

func stop(ctx context.Context, c client.Client, claim Claim, guard operation) error {
	err := c.Patch(ctx, claim.object(), jsonPatch(
		test("/metadata/uid", claim.PodUID), guard,
		add(labelPath(v1alpha1.LabelPhase), v1alpha1.PodStopping)))
	return judge(err).asError("stop pod "+claim.Namespace+"/"+claim.PodName, err)
}

func (c Claim) doing() string { return "claim pod " + c.Namespace + "/" + c.PodName }
