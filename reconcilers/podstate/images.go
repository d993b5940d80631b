package podstate

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// imageState is how far a container is on its way to the image of its spec.
type imageState int

const (
	// imageWaits: the container does not run, or runs another image.
	imageWaits imageState = iota
	// imageRuns: the container runs the image of its spec.
	imageRuns
	// imageUnclear: the container runs an image that is reported under another name. The
	// digests of the spec's image must be resolved to know whether it is the same.
	imageUnclear
)

// judgeImage is pure. was is what ran before the claim; known is false if there
// is no record. A container whose image was changed must be another one than on
// record: a kubelet may report an old container under a new tag of its digest.
func judgeImage(c *corev1.Container, s *corev1.ContainerStatus, was Container, known bool) imageState {
	if s == nil || s.State.Running == nil {
		return imageWaits
	}
	changed := known && was.Image != c.Image
	if changed && was.ID != "" && !was.another(s) {
		return imageWaits
	}
	if names(s, c.Image) {
		return imageRuns
	}
	if _, pinned, ok := strings.Cut(c.Image, "@"); ok && pinned == digestOf(s.ImageID) {
		return imageRuns
	}
	if !changed && known {
		return imageRuns // it ran when the pod turned idle, whatever the kubelet calls it
	}
	return imageUnclear
}

// names: the status names the image as the spec does, or by a fuller name. A
// kubelet reports an image by the name it was pulled as.
func names(s *corev1.ContainerStatus, image string) bool {
	if sameImage(s.Image, image) {
		return true
	}
	// containerd gives an image that has no tag any more by its digest alone.
	name, _, pinned := strings.Cut(image, "@")
	return pinned && strings.HasSuffix(s.ImageID, image[len(name):])
}

// digestOf returns the digest in an imageID, "" if there is none. containerd and
// CRI-O report repository@sha256:…, an image without a repository as sha256:… or
// as the bare hexadecimal ID of its configuration; older kubelets put a scheme in
// front.
func digestOf(imageID string) string {
	if _, after, ok := strings.Cut(imageID, "://"); ok {
		imageID = after
	}
	if _, digest, ok := strings.Cut(imageID, "@"); ok {
		return digest
	}
	if strings.HasPrefix(imageID, "sha256:") {
		return imageID
	}
	if len(imageID) == 64 && strings.Trim(imageID, "0123456789abcdef") == "" {
		return "sha256:" + imageID
	}
	return ""
}

// RunsItsImages reports whether every container runs the image of its spec. unclear lists the
// containers whose digest must be resolved to know. It is pure.
func RunsItsImages(pod *corev1.Pod) (all bool, unclear []string) {
	record := OnRecord(pod)
	all = true
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		was, known := record[c.Name]
		switch judgeImage(c, statusOf(pod, c.Name), was, known) {
		case imageWaits:
			all = false
		case imageUnclear:
			all = false
			unclear = append(unclear, c.Name)
		}
	}
	return all, unclear
}

// ImagesResolve reports whether the digests of the unclear containers are those of
// their images, and every other container runs its image. resolve returns all digests
// that an image's name stands for.
func ImagesResolve(ctx context.Context, pod *corev1.Pod, unclear []string, resolve func(ctx context.Context, image string) ([]string, error)) (bool, error) {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		s := statusOf(pod, c.Name)
		if !slices.Contains(unclear, c.Name) {
			was, known := OnRecord(pod)[c.Name]
			if judgeImage(c, s, was, known) != imageRuns {
				return false, nil
			}
			continue
		}
		digests, err := resolve(ctx, c.Image)
		if err != nil || !slices.Contains(digests, digestOf(s.ImageID)) {
			return false, err
		}
	}
	return true, nil
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
