package schedule

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// ClaimOptions say what a claim changes on its pod. The zero value changes
// nothing but the claim itself.
type ClaimOptions struct {
	// ContainerImages are images by container name. The first container of a pod with
	// AnnotationImage gets that one unless it is named here.
	ContainerImages map[string]string
	// Labels and Annotations are written with the claim. Sandlane's own keys are
	// refused (ErrInvalid), but for the env label.
	Labels, Annotations map[string]string
	// TargetPodPhase is PodRunning or PodStarting. Empty means PodStarting if an
	// image changes or the pod has post-start hooks, else PodRunning; PodRunning is
	// refused for a pod that must start first.
	TargetPodPhase v1alpha1.PodPhase
}

// reserved is the prefix of the keys that a claim must not be able to set.
const reserved = "sandlane.dev/"

// container is what a claim needs to know of a pod's container: claimed is the image
// that a claim gives it unless it is told another, empty for the one that it has.
type container struct{ name, image, claimed string }

func containersOf(pod *corev1.Pod) []container {
	all := make([]container, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		all[i] = container{name: pod.Spec.Containers[i].Name, image: pod.Spec.Containers[i].Image}
	}
	if len(all) > 0 {
		all[0].claimed = pod.Annotations[v1alpha1.AnnotationImage]
	}
	return all
}

// claim builds the claim of one pod.
func (o ClaimOptions) claim(of *shape) (Claim, error) {
	images, err := imageChanges(of.containers, o.ContainerImages)
	if err != nil {
		return Claim{}, err
	}
	phase, err := targetPhase(o.TargetPodPhase, len(images) > 0, of.hooks)
	if err != nil {
		return Claim{}, err
	}
	for key := range o.Labels {
		if strings.HasPrefix(key, reserved) && key != v1alpha1.LabelEnv {
			return Claim{}, invalidf("label %s is not a claim's to set", key)
		}
	}
	for key := range o.Annotations {
		if strings.HasPrefix(key, reserved) {
			return Claim{}, invalidf("annotation %s is not a claim's to set", key)
		}
	}
	return Claim{Phase: phase, Images: images, Labels: o.Labels, Annotations: o.Annotations}, nil
}

// imageChanges lists the containers whose image differs from what is wanted, or from
// what any claim gives them, in the pod's order.
func imageChanges(containers []container, want map[string]string) ([]ImageChange, error) {
	var changes []ImageChange
	known := 0
	for i, c := range containers {
		image, ok := want[c.name]
		switch {
		case ok:
			known++
		case c.claimed != "":
			image = c.claimed
		default:
			continue
		}
		if image != c.image {
			changes = append(changes, ImageChange{Index: i, Container: c.name, Image: image})
		}
	}
	if known < len(want) {
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if !slices.ContainsFunc(containers, func(c container) bool { return c.name == name }) {
				return nil, invalidf("the pool's pods have no container %q", name)
			}
		}
	}
	return changes, nil
}

// targetPhase decides the phase that a claim leaves its pod in. From starting to
// running the pool reconciler takes it, once its images run and its hooks are done.
func targetPhase(want v1alpha1.PodPhase, changed, hooks bool) (v1alpha1.PodPhase, error) {
	switch {
	case want == "" && (changed || hooks):
		return v1alpha1.PodStarting, nil
	case want == "":
		return v1alpha1.PodRunning, nil
	case want == v1alpha1.PodRunning && changed:
		return "", invalidf("a pod whose image changes is not running yet")
	case want == v1alpha1.PodRunning && hooks:
		return "", invalidf("a pod with post-start hooks is not running before they are done")
	case want == v1alpha1.PodRunning, want == v1alpha1.PodStarting:
		return want, nil
	}
	return "", invalidf("a claim cannot leave its pod %s", want)
}
