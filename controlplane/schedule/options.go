package schedule

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// ClaimOptions say what a claim changes on its pod. The zero value changes
// nothing but the claim itself.
type ClaimOptions struct {
	// ContainerImages are images by container name.
	ContainerImages map[string]string
	// Labels and Annotations are written with the claim. Keys that Sandlane
	// itself keeps on pods are refused (ErrInvalid), but for the env label.
	Labels, Annotations map[string]string
	// TargetPodPhase is PodRunning or PodStarting. Empty means PodStarting if an
	// image changes, else PodRunning; PodRunning with a changed image is refused.
	TargetPodPhase v1alpha1.PodPhase
}

// reserved are the keys that a claim must not be able to set.
var reserved = []string{
	v1alpha1.LabelPool, v1alpha1.LabelPhase, v1alpha1.LabelSandboxID,
	v1alpha1.AnnotationClaim, v1alpha1.AnnotationAddress, v1alpha1.AnnotationClaimedAt,
	v1alpha1.AnnotationStartedAt, v1alpha1.AnnotationTemplateHash,
	v1alpha1.AnnotationFailureReason, v1alpha1.AnnotationFailureMessage,
}

// container is what a claim needs to know of a pod's container.
type container struct{ name, image string }

func containersOf(pod *corev1.Pod) []container {
	all := make([]container, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		all[i] = container{pod.Spec.Containers[i].Name, pod.Spec.Containers[i].Image}
	}
	return all
}

// claim builds the claim of one pod.
func (o ClaimOptions) claim(containers []container) (Claim, error) {
	images, err := imageChanges(containers, o.ContainerImages)
	if err != nil {
		return Claim{}, err
	}
	phase, err := targetPhase(o.TargetPodPhase, len(images) > 0)
	if err != nil {
		return Claim{}, err
	}
	for _, key := range reserved {
		_, label := o.Labels[key]
		if _, annotation := o.Annotations[key]; label || annotation {
			return Claim{}, fmt.Errorf("%w: %s is not a claim's to set", ErrInvalid, key)
		}
	}
	return Claim{Phase: phase, Images: images, Labels: o.Labels, Annotations: o.Annotations}, nil
}

// imageChanges lists the containers whose image differs from what is wanted, in
// the pod's order.
func imageChanges(containers []container, want map[string]string) ([]ImageChange, error) {
	var changes []ImageChange
	known := 0
	for i, c := range containers {
		image, ok := want[c.name]
		if !ok {
			continue
		}
		known++
		if image != c.image {
			changes = append(changes, ImageChange{Index: i, Container: c.name, Image: image})
		}
	}
	if known < len(want) {
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if !slices.ContainsFunc(containers, func(c container) bool { return c.name == name }) {
				return nil, fmt.Errorf("%w: the pool's pods have no container %q", ErrInvalid, name)
			}
		}
	}
	return changes, nil
}

// targetPhase decides the phase that a claim leaves its pod in.
func targetPhase(want v1alpha1.PodPhase, changed bool) (v1alpha1.PodPhase, error) {
	switch {
	case want == "" && changed:
		return v1alpha1.PodStarting, nil
	case want == "":
		return v1alpha1.PodRunning, nil
	case want == v1alpha1.PodRunning && changed:
		return "", fmt.Errorf("%w: a pod whose image changes is not running yet", ErrInvalid)
	case want == v1alpha1.PodRunning, want == v1alpha1.PodStarting:
		return want, nil
	}
	return "", fmt.Errorf("%w: a claim cannot leave its pod %s", ErrInvalid, want)
}
