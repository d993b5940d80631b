package sandboxpool

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/reconcilers/podstate"
)

// ReleaseSandboxPodOptions say why a claim is over. The zero value releases a
// sandbox that has completed now.
type ReleaseSandboxPodOptions struct {
	// StopReason is StopCompleted if empty.
	StopReason v1alpha1.StopReason
	// TerminatedAt is when the sandbox stopped; nil is now.
	TerminatedAt *metav1.Time
	// FailureReason and FailureMessage say what went wrong, ExitCode how the
	// container ended.
	FailureReason, FailureMessage string
	ExitCode                      *int32
	// ExpectedCurrentSandboxPhase, if set, is the only phase that the pod is
	// released from.
	ExpectedCurrentSandboxPhase v1alpha1.PodPhase
	// LetGo removes FinalizerPod as well. The caller must know that the pod's Sandbox
	// has ended and has the pod's address in its status.
	LetGo bool
	// DisableRetry gives up at the first conflict inside the API server, for
	// callers that look anew anyway.
	DisableRetry bool
}

// OptionsOf returns the options for a claim whose record was captured.
func OptionsOf(record *v1alpha1.StopRecord) ReleaseSandboxPodOptions {
	if record == nil {
		return ReleaseSandboxPodOptions{StopReason: v1alpha1.StopReleased}
	}
	return ReleaseSandboxPodOptions{
		StopReason: record.StopReason, TerminatedAt: record.TerminatedAt, ExitCode: record.ExitCode,
		FailureReason: record.FailureReason, FailureMessage: record.FailureMessage,
	}
}

// ReleaseSandboxPod takes a claimed pod out of use: phase stopping, and why, in
// one write that tests the UID and the claim. It returns the pod as written, or
// writes.ErrStale. What becomes of the pod then is the pool reconciler's.
func ReleaseSandboxPod(ctx context.Context, c client.Client, pod *corev1.Pod, o ReleaseSandboxPodOptions) (*corev1.Pod, error) {
	claim := pod.Annotations[v1alpha1.AnnotationClaim]
	if claim == "" {
		return nil, fmt.Errorf("releasing pod %s: it has no claim", pod.Name)
	}
	p := writes.For(pod.UID).Test(writes.Claim, claim)
	if o.ExpectedCurrentSandboxPhase != "" {
		p = p.Test(writes.Phase, o.ExpectedCurrentSandboxPhase)
	}
	p = Stop(p, pod).
		Set(writes.Annotation(v1alpha1.AnnotationStop), o.encode(pod))
	if o.LetGo {
		p = p.RemoveFinalizer(pod.Finalizers, FinalizerName)
	}
	var out *corev1.Pod
	write := func() error {
		out = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
		return c.Patch(ctx, out, p.Build())
	}
	var err error
	if o.DisableRetry {
		err = write()
	} else {
		err = retry.RetryOnConflict(retry.DefaultRetry, write)
	}
	switch {
	case err == nil:
		return out, nil
	case writes.Moved(err):
		return nil, writes.ErrStale
	default:
		return nil, fmt.Errorf("stopping pod %s: %w", pod.Name, err)
	}
}

// Stop adds phase stopping to p. It gives the pod back the label of the pool that owns it: without
// it no watch of the controller shows the pod, and nothing deletes it.
func Stop(p writes.Patch, pod *corev1.Pod) writes.Patch {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner != nil && owner.Kind == "SandboxPool" && pod.Labels[v1alpha1.LabelPool] == "" {
		p = p.Set(writes.Label(v1alpha1.LabelPool), owner.Name)
	}
	return p.Set(writes.Phase, v1alpha1.PodStopping)
}

// encode is the value of AnnotationStop.
func (o ReleaseSandboxPodOptions) encode(pod *corev1.Pod) string {
	record := v1alpha1.StopRecord{
		StopReason: o.StopReason, TerminatedAt: o.TerminatedAt, ExitCode: o.ExitCode,
		FailureReason: o.FailureReason, FailureMessage: short(o.FailureMessage),
		PodName: pod.Name, NodeName: pod.Spec.NodeName, Images: podstate.ImagesThatRan(pod),
	}
	if record.StopReason == "" {
		record.StopReason = v1alpha1.StopCompleted
	}
	if record.TerminatedAt == nil {
		record.TerminatedAt = new(metav1.Now())
	}
	raw, err := json.Marshal(record)
	if err != nil {
		panic(err) // strings, numbers and times
	}
	return string(raw)
}

// short cuts a text to what an annotation should hold.
func short(text string) string {
	if runes := []rune(text); len(runes) > maxAnnotation {
		return string(runes[:maxAnnotation])
	}
	return text
}
