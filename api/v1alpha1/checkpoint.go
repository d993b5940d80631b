package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// EmptyDirs are where the container with sandboxd has emptyDir volumes that it may write
// to: they belong to the sandbox's files.
func EmptyDirs(spec *corev1.PodSpec) (paths []string) {
	for i := range spec.Containers {
		c := &spec.Containers[i]
		if !RunsSandboxd(&corev1.PodSpec{Containers: spec.Containers[i : i+1]}) {
			continue
		}
		for _, m := range c.VolumeMounts {
			empty := slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name && v.EmptyDir != nil })
			if empty && !m.ReadOnly {
				paths = append(paths, m.MountPath)
			}
		}
	}
	return paths
}

// ImageDigests are the digests of the images that a pod's containers run, by the
// containers' names; empty for one that its node has not told.
func ImageDigests(pod *corev1.Pod) map[string]string {
	digests := map[string]string{}
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		digests[c.Name] = c.ImageID
	}
	return digests
}
