package sandboxpool

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/podstate"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/podtemplate"
)

const (
	// resolveTime bounds one call of the DigestResolver, during which a worker waits.
	resolveTime  = 2 * time.Second
	resolveAgain = time.Second
)

// resolves reports whether the unclear containers run their images under other names.
// Without a DigestResolver that is not known, and false.
func (r *SandboxPoolReconciler) resolves(ctx context.Context, pod *corev1.Pod, unclear []string) (bool, error) {
	if r.DigestResolver == nil {
		return false, nil
	}
	return podstate.ImagesResolve(ctx, pod, unclear, r.DigestResolver.ResolveDigests)
}

// resolve turns a pod running whose images are reported under other names.
func (r *SandboxPoolReconciler) resolve(ctx context.Context, pool *v1alpha1.SandboxPool, tpl *podtemplate.Template, pod *corev1.Pod, left time.Duration) (time.Duration, error) {
	_, unclear := podstate.RunsItsImages(pod)
	bounded, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	yes, err := r.resolves(bounded, pod, unclear)
	switch {
	case err != nil:
		log.FromContext(ctx).Info("an image's digest is not known; it is asked for again", "pod", pod.Name, "cause", err.Error())
		return resolveAgain, nil
	case !yes:
		return resolveAgain, nil
	case v1alpha1.HasPostStartHooks(pod):
		return r.hooks(ctx, pool, tpl, pod, left)
	default:
		return 0, r.toRunning(ctx, pod)
	}
}

func readyCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c
		}
	}
	return nil
}

func ready(pod *corev1.Pod) bool {
	c := readyCondition(pod)
	return c != nil && c.Status == corev1.ConditionTrue
}
