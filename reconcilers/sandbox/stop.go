package sandbox

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool"
)

// retrySoon is the delay after a write that was refused because the object has changed.
const retrySoon = 50 * time.Millisecond

// stopping is how a pod must be stopped so that its claim is over, and no claim PATCH of the
// binding is applied to it any more.
type stopping int

const (
	// stopNothing: the pod is stopped already, or can get no claim.
	stopNothing stopping = iota
	// stopClaimed: stop a pod that carries the claim.
	stopClaimed
	// stopUnclaimed: stop an idle pod, to which the claim PATCH may be on its way.
	stopUnclaimed
)

// decideStop decides how to stop a pod that was read from the API server; nil is a pod that
// is gone. It is pure.
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

// stop stops the pod of an ended sandbox. It returns the resourceVersion for the fence: that
// of its write, of the pod as it was read, or of a pod list that lacks the pod; writes.ErrStale
// if the pod has changed since it was read.
//
// The write also removes the pod's finalizer, because the Sandbox has ended and has the pod's
// address in its status. A pod whose pool may use it again keeps the finalizer.
func (r *Reconciler) stop(ctx context.Context, s *v1alpha1.Sandbox, rec record, pod *corev1.Pod) (uint64, error) {
	what := decideStop(s, pod)
	if what == stopNothing {
		if rec.address == "" {
			return 0, nil // no fence is needed
		}
		if pod != nil && served(s) {
			return parseRV(pod.ResourceVersion)
		}
		return r.podListRV(ctx) // the address is that of a former claim, whose pod may have been written after this pod
	}
	if what == stopClaimed {
		o := sandboxpool.OptionsOf(rec.stop)
		o.DisableRetry = true // carryOutEnd begins again
		again, err := r.reusesPods(ctx, s)
		if err != nil {
			return 0, err
		}
		o.LetGo = !again && s.Status.Address == pod.Annotations[v1alpha1.AnnotationAddress]
		return releasePod(ctx, r.Client, pod, o)
	}
	return stopPod(ctx, r.Client, pod, writes.For(pod.UID).Test(writes.Phase, v1alpha1.PodIdle).Test(writes.Claim, nil))
}

// reusesPods reports whether the sandbox's pool may use its pods again.
func (r *Reconciler) reusesPods(ctx context.Context, s *v1alpha1.Sandbox) (bool, error) {
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

// releasePod stops a claimed pod and writes the reason to it. It returns the resourceVersion
// of the write.
func releasePod(ctx context.Context, c client.Client, pod *corev1.Pod, o sandboxpool.ReleaseSandboxPodOptions) (uint64, error) {
	out, err := sandboxpool.ReleaseSandboxPod(ctx, c, pod, o)
	if err != nil {
		return 0, err
	}
	return parseRV(out.ResourceVersion)
}

// stopPod adds phase stopping to p, whose tests must hold, and sends it.
func stopPod(ctx context.Context, c client.Client, pod *corev1.Pod, p writes.Patch) (uint64, error) {
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err := c.Patch(ctx, out, sandboxpool.Stop(p, pod).Build())
	if writes.Moved(err) {
		return 0, writes.ErrStale
	}
	if err != nil {
		return 0, fmt.Errorf("stopping pod %s: %w", pod.Name, err)
	}
	return parseRV(out.ResourceVersion)
}

// podListRV returns the resourceVersion of a live pod list. It lists one pod, since a list's
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
