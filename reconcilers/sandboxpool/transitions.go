package sandboxpool

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/reconcilers/internal/resync"
	"github.com/sandlane/sandlane/reconcilers/podstate"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/podtemplate"
)

const (
	pathDeleted   = "/metadata/deletionTimestamp"
	pathPodIP     = "/status/podIP"
	maxAnnotation = 1024
)

// errAddressBusy: a pod has waited for its address for too long.
var errAddressBusy = errors.New("its address is not free")
var pathContainers = writes.Annotation(v1alpha1.AnnotationContainers)

// toIdle offers the pod for claims, once its address is free. If the address is not free in
// time, it returns errAddressBusy and when to ask again; the pod then does not count as
// stock until its address is free.
func (r *SandboxPoolReconciler) toIdle(ctx context.Context, pool *v1alpha1.SandboxPool, tpl *podtemplate.Template, pod *corev1.Pod) (time.Duration, error) {
	verdict, err := r.rule.Check(ctx, pod)
	if err != nil {
		return 0, err
	}
	if !verdict.Free {
		left := addressPatience - r.now().Sub(readyCondition(pod).LastTransitionTime.Time)
		if left > 0 || !r.Ledger.Loaded() {
			return resync.Sooner(verdict.RetryAfter, left), nil
		}
		return max(verdict.RetryAfter, waitingPoll), errAddressBusy
	}
	applied, err := r.tryPatch(ctx, pod, v1alpha1.PodIdle, writes.For(pod.UID).
		Test(writes.Phase, v1alpha1.PodWarming).
		Test(pathDeleted, nil).
		Test(pathPodIP, pod.Status.PodIP).
		Set(writes.Phase, v1alpha1.PodIdle).
		Set(pathContainers, podstate.EncodeContainers(podstate.ContainersOf(pod))).
		Set(writes.Annotation(v1alpha1.AnnotationIdleSince), r.now().UTC().Format(time.RFC3339Nano)).
		Set(writes.Address, pod.Status.PodIP))
	if applied && r.IdleNotifier != nil {
		r.IdleNotifier.NotifyIdleAvailable(pod.Namespace, pod.Labels[v1alpha1.LabelPool])
	}
	if _, recycled := pod.Annotations[v1alpha1.AnnotationRecycled]; applied && !recycled {
		r.Metrics.turnedIdle(poolOfPod(pod), r.now().Sub(pod.CreationTimestamp.Time))
	}
	if err == nil && pool != nil {
		r.backoff.idle(types.NamespacedName{Namespace: pool.Namespace, Name: pool.Name}, tpl.HashOrEmpty())
	}
	return 0, err
}

func (r *SandboxPoolReconciler) toRunning(ctx context.Context, pod *corev1.Pod) error {
	applied, err := r.tryPatch(ctx, pod, v1alpha1.PodRunning, writes.For(pod.UID).
		Test(writes.Phase, v1alpha1.PodStarting).
		Test(writes.Claim, pod.Annotations[v1alpha1.AnnotationClaim]).
		Test(pathDeleted, nil).
		Set(writes.Phase, v1alpha1.PodRunning).
		Set(pathContainers, podstate.EncodeContainers(podstate.ContainersOf(pod))).
		Set(writes.Annotation(v1alpha1.AnnotationStartedAt), r.now().UTC().Format(time.RFC3339Nano)))
	if applied {
		r.callReadyHook(ctx, pod)
	}
	return err
}

// putOnRecord writes what runs in the pod to its annotation AnnotationContainers, and
// changes nothing else.
func (r *SandboxPoolReconciler) putOnRecord(ctx context.Context, pod *corev1.Pod) error {
	p := writes.For(pod.UID).Test(writes.Phase, v1alpha1.PhaseOf(pod))
	if was, ok := pod.Annotations[v1alpha1.AnnotationContainers]; ok {
		p = p.Test(pathContainers, was)
	} else {
		p = p.Test(pathContainers, nil)
	}
	if claimed(pod) {
		p = p.Test(writes.Claim, pod.Annotations[v1alpha1.AnnotationClaim])
	} else {
		p = p.Test(writes.Claim, nil)
	}
	return r.patch(ctx, pod, "", p.Set(pathContainers, podstate.EncodeContainers(podstate.ContainersOf(pod))))
}

// toFailed takes the pod out of use. Its sandbox, if it has one, is ended by
// reconcilers/sandbox when it sees the phase.
func (r *SandboxPoolReconciler) toFailed(ctx context.Context, pool *v1alpha1.SandboxPool, tpl *podtemplate.Template, pod *corev1.Pod, d decision) error {
	phase := v1alpha1.PhaseOf(pod)
	message := short(d.message + r.quoteEvents(ctx, pod, d.reason))
	p := writes.For(pod.UID).Test(writes.Phase, phase)
	if claimed(pod) {
		p = p.Test(writes.Claim, pod.Annotations[v1alpha1.AnnotationClaim])
	} else {
		p = p.Test(writes.Claim, nil)
	}
	err := r.patch(ctx, pod, v1alpha1.PodFailed, p.
		Set(writes.Phase, v1alpha1.PodFailed).
		Set(writes.Annotation(v1alpha1.AnnotationFailureReason), d.reason).
		Set(writes.Annotation(v1alpha1.AnnotationFailureMessage), message))
	if err != nil {
		return err
	}
	r.event(pool, corev1.EventTypeWarning, d.reason, "Fail", "pod %s failed while %s: %s", pod.Name, phase, message)
	if phase == v1alpha1.PodWarming && pool != nil && pod.Annotations[v1alpha1.AnnotationTemplateHash] == tpl.HashOrEmpty() {
		reason := d.reason
		if detail := podstate.BuildSandboxStatusDetailFromPod(pod); detail != nil && v1alpha1.KeepsFromStarting(steady(detail.Reason)) {
			reason = steady(detail.Reason) // which says more than that time was up
		}
		r.backoff.unready(types.NamespacedName{Namespace: pool.Namespace, Name: pool.Name}, tpl.HashOrEmpty(), reason, "pod "+pod.Name+": "+message)
	}
	return nil
}

// quoteEvents adds to the message of a pod that never got Ready what the node or
// the scheduler said of it.
func (r *SandboxPoolReconciler) quoteEvents(ctx context.Context, pod *corev1.Pod, reason string) string {
	if reason != podstate.ReasonStartupTimeout || podstate.BuildSandboxStatusDetailFromPod(pod) != nil {
		return ""
	}
	d, err := podstate.BuildPodStatusDetailWithEvents(ctx, r.Clientset, pod)
	if err != nil {
		log.FromContext(ctx).Info("a failed pod is reported without its events", "pod", pod.Name, "cause", err.Error())
	}
	if d == nil {
		return ""
	}
	return ": " + d.Message
}

// forget lets a pod go that is being deleted and on record.
func (r *SandboxPoolReconciler) forget(ctx context.Context, pod *corev1.Pod) error {
	return r.patch(ctx, pod, "", writes.For(pod.UID).RemoveFinalizer(pod.Finalizers, FinalizerName))
}

// patch sends one transition. nil also means that it was refused because the
// pod has moved on.
func (r *SandboxPoolReconciler) patch(ctx context.Context, pod *corev1.Pod, to v1alpha1.PodPhase, p writes.Patch) error {
	_, err := r.tryPatch(ctx, pod, to, p)
	return err
}

// tryPatch is patch that tells whether the write was applied.
func (r *SandboxPoolReconciler) tryPatch(ctx context.Context, pod *corev1.Pod, to v1alpha1.PodPhase, p writes.Patch) (applied bool, err error) {
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = r.Client.Patch(ctx, out, p.Build())
	switch {
	case err == nil:
		r.Metrics.transition(to)
		return true, nil
	case apierrors.IsNotFound(err):
		return false, nil
	case writes.Refused(err):
		r.Metrics.refused()
		return false, nil
	case to == "":
		return false, fmt.Errorf("writing pod %s: %w", pod.Name, err)
	default:
		return false, fmt.Errorf("turning pod %s %s: %w", pod.Name, to, err)
	}
}

func ignoreMoved(err error) error {
	if errors.Is(err, writes.ErrStale) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
