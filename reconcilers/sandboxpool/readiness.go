package sandboxpool

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

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

// runsItsImages: every container runs, and runs the image the spec asks for. A
// kubelet reports an image by the name it was pulled as or by a fuller one.
func runsItsImages(pod *corev1.Pod) bool {
	for _, c := range pod.Spec.Containers {
		if !runs(pod, c.Name, c.Image) {
			return false
		}
	}
	return true
}

func runs(pod *corev1.Pod, container, image string) bool {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == container {
			return s.State.Running != nil && sameImage(s.Image, image)
		}
	}
	return false
}

func sameImage(reported, wanted string) bool {
	reported, wanted = tagged(reported), tagged(wanted)
	return reported == wanted || strings.HasSuffix(reported, "/"+wanted)
}

// tagged adds the default tag to an image name that has neither tag nor digest.
func tagged(image string) string {
	if name := image[strings.LastIndex(image, "/")+1:]; strings.ContainsAny(name, ":@") {
		return image
	}
	return image + ":latest"
}
