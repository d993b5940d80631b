package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/jsonpatch"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool"
)

// retrySoon is the wait after a write that came too late.
const retrySoon = 50 * time.Millisecond

// stopping is what must be done to a pod so that its claim is over and no claim
// PATCH of the binding can land any more.
type stopping int

const (
	// stopNothing: it is so already.
	stopNothing stopping = iota
	// stopClaimed: the pod carries the claim.
	stopClaimed
	// stopUnclaimed: the claim PATCH may be on its way.
	stopUnclaimed
)

// decideStop judges a pod from a live read; nil is a pod that is gone. It is
// pure.
func decideStop(s *v1alpha1.Sandbox, pod *corev1.Pod) stopping {
	switch {
	case pod == nil || s.Spec.Binding == nil:
		return stopNothing
	case v1alpha1.Backs(pod, s):
		if phase := v1alpha1.PhaseOf(pod); phase == v1alpha1.PodStopping || phase == v1alpha1.PodFailed {
			return stopNothing
		}
		return stopClaimed
	case mayBeClaimed(pod):
		return stopUnclaimed
	default:
		return stopNothing
	}
}

// stop takes the pod out of the claim's hands. It returns the resourceVersion
// for the fence: that of its write, of the pod as it was found, or of a pod list
// that lacks it. errMoved means that the pod changed since it was read.
//
// The pod's finalizer goes with the write: the Sandbox has ended and has the pod's
// address in its status. One whose pool uses pods again keeps it.
func (r *Reconciler) stop(ctx context.Context, s *v1alpha1.Sandbox, rec record, pod *corev1.Pod) (uint64, error) {
	what := decideStop(s, pod)
	if what == stopNothing {
		if rec.address == "" {
			return 0, nil // no fence is needed
		}
		// A former claim's address: its pod may have been written after this one.
		if pod != nil && served(s) {
			return parseRV(pod.ResourceVersion)
		}
		return r.podListRV(ctx)
	}
	if what == stopClaimed {
		o := sandboxpool.OptionsOf(rec.stop)
		o.DisableRetry = true // the end starts over
		again, err := r.usedAgain(ctx, s)
		if err != nil {
			return 0, err
		}
		o.LetGo = !again && s.Status.Address == pod.Annotations[v1alpha1.AnnotationAddress]
		return releasePod(ctx, r.Client, pod, o)
	}
	return stopPod(ctx, r.Client, pod, jsonpatch.For(pod.UID).Test(jsonpatch.Phase, v1alpha1.PodIdle).Test(jsonpatch.Claim, nil))
}

// usedAgain reports whether the sandbox's pool may use its pods again.
func (r *Reconciler) usedAgain(ctx context.Context, s *v1alpha1.Sandbox) (bool, error) {
	pool := &v1alpha1.SandboxPool{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.Spec.Namespace, Name: s.Spec.Pool}, pool, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading pool %s: %w", s.Spec.Pool, err)
	}
	return pool.Spec.RecyclePolicy == v1alpha1.RecycleInPlace, nil
}

// releasePod stops a claimed pod, and says on it why.
func releasePod(ctx context.Context, c client.Client, pod *corev1.Pod, o sandboxpool.ReleaseSandboxPodOptions) (uint64, error) {
	out, err := sandboxpool.ReleaseSandboxPod(ctx, c, pod, o)
	if errors.Is(err, sandboxpool.ErrPodMoved) {
		return 0, errMoved
	}
	if err != nil {
		return 0, err
	}
	return parseRV(out.ResourceVersion)
}

// stopPod writes phase stopping under the tests of p.
func stopPod(ctx context.Context, c client.Client, pod *corev1.Pod, p jsonpatch.Patch) (uint64, error) {
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err := c.Patch(ctx, out, p.Set(jsonpatch.Phase, v1alpha1.PodStopping).Build())
	if jsonpatch.Moved(err) {
		return 0, errMoved
	}
	if err != nil {
		return 0, fmt.Errorf("stopping pod %s: %w", pod.Name, err)
	}
	return parseRV(out.ResourceVersion)
}

// podListRV is the resourceVersion of a live pod list. One pod is enough: the
// version is that of the whole resource.
func (r *Reconciler) podListRV(ctx context.Context) (uint64, error) {
	var list corev1.PodList
	if err := r.APIReader.List(ctx, &list, client.Limit(1)); err != nil {
		return 0, fmt.Errorf("listing pods for their resourceVersion: %w", err)
	}
	return parseRV(list.ResourceVersion)
}

func parseRV(rv string) (uint64, error) {
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("pod resourceVersion %q: %w", rv, err)
	}
	return n, nil
}
