package schedule

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// Claim is what one claim PATCH writes, and on which pod.
type Claim struct {
	SandboxID, ClaimID string
	// Env is the sandbox's env; empty for none.
	Env string
	// Rules is the value of v1alpha1.LabelRules; empty for none.
	Rules              string
	Namespace, PodName string
	PodUID             types.UID
	// Phase is PodRunning or PodStarting.
	Phase v1alpha1.PodPhase
	// Images are the containers whose image changes.
	Images []ImageChange
	// Labels and Annotations are written besides the claim's own.
	Labels, Annotations map[string]string
	// At is claimed-at, and started-at of a running pod. Zero means now.
	At time.Time
}

// ImageChange gives the container at Index, which must have the name
// Container, another image.
type ImageChange struct {
	Index            int
	Container, Image string
}

// NewClaimID returns a claim ID that was never used.
func NewClaimID() string { return string(uuid.NewUUID()) }

// ClaimOf returns the claim that the sandbox's binding asks for on its pod, for
// the process that completes an activation which another began. It needs a binding that
// names the pod. The error is ErrInvalid if the sandbox wants what the pod
// cannot give.
func ClaimOf(s *v1alpha1.Sandbox, pod *corev1.Pod) (Claim, error) {
	b := s.Spec.Binding
	images, err := imageChanges(containersOf(pod), s.Spec.Images)
	if err != nil {
		return Claim{}, fmt.Errorf("claim pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	phase, err := targetPhase("", len(images) > 0, v1alpha1.HasPostStartHooks(pod))
	return Claim{
		SandboxID: s.Name, ClaimID: b.ClaimID, Env: s.Spec.Env, Rules: v1alpha1.ClaimRules(s.Spec.FirstRequest, s.Spec.Egress),
		Namespace: s.Spec.Namespace, PodName: b.PodName, PodUID: types.UID(b.PodUID),
		Phase: phase, Images: images,
	}, err
}

// BindingOf returns the binding that names the pod under the claim in its
// annotation: what Bind writes for the pod it is handed.
func BindingOf(pod *corev1.Pod) *v1alpha1.Binding {
	return &v1alpha1.Binding{
		ClaimID: pod.Annotations[v1alpha1.AnnotationClaim],
		PodName: pod.Name, PodUID: string(pod.UID),
	}
}

// On reports whether the pod is this claim's and carries it.
func (c Claim) On(pod *corev1.Pod) bool {
	return pod.UID == c.PodUID && pod.Annotations[v1alpha1.AnnotationClaim] == c.ClaimID &&
		pod.Labels[v1alpha1.LabelSandboxID] == c.SandboxID
}

// object is the pod to be patched or read, by name.
func (c Claim) object() *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = c.Namespace, c.PodName
	return pod
}

// Patch returns the claim as one JSON Patch. It applies only to the pod with
// the claim's UID, while that is idle and not being deleted, so that of all the
// claims of one pod at most one ever applies.
func (c Claim) Patch() client.Patch {
	at := c.At
	if at.IsZero() {
		at = time.Now()
	}
	stamp := at.UTC().Format(time.RFC3339Nano)
	p := writes.For(c.PodUID).
		Test(writes.Phase, v1alpha1.PodIdle).
		Test("/metadata/deletionTimestamp", nil)
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		p = p.Set(writes.Label(key), c.Labels[key])
	}
	for _, key := range slices.Sorted(maps.Keys(c.Annotations)) {
		p = p.Set(writes.Annotation(key), c.Annotations[key])
	}
	p = p.Set(writes.Phase, c.Phase).
		Set(writes.Label(v1alpha1.LabelSandboxID), c.SandboxID).
		Set(writes.Claim, c.ClaimID).
		Set(writes.Annotation(v1alpha1.AnnotationClaimedAt), stamp)
	if c.Env != "" {
		p = p.Set(writes.Label(v1alpha1.LabelEnv), c.Env)
	}
	if c.Rules != "" {
		p = p.Set(writes.Label(v1alpha1.LabelRules), c.Rules)
	}
	if c.Phase == v1alpha1.PodRunning {
		p = p.Set(writes.Annotation(v1alpha1.AnnotationStartedAt), stamp)
	}
	for _, i := range c.Images {
		at := fmt.Sprintf("/spec/containers/%d", i.Index)
		p = p.Test(at+"/name", i.Container).Set(at+"/image", i.Image)
	}
	return p.Build()
}
