package sandboxpool

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

const (
	// resolveTime bounds one question for a digest, which holds a worker up.
	resolveTime  = 2 * time.Second
	resolveAgain = time.Second
)

// DigestResolver tells what an image name stands for. It is asked only when a
// pod's status names an image otherwise than the pod's spec, at most once a
// second for a container, and must honour ctx.
type DigestResolver interface {
	// ResolveDigests returns all digests ("sha256:…") by which a container
	// runtime may report the image now: those of the manifest list, of the
	// platform's manifest, and of the configuration.
	ResolveDigests(ctx context.Context, image string) ([]string, error)
}

// imageState is how far a container is on its way to the image of its spec.
type imageState int

const (
	// imageWaits: it does not run, or another image.
	imageWaits imageState = iota
	// imageRuns: it runs it.
	imageRuns
	// imageUnclear: another container runs, under a name that may stand for the
	// same digest. Its digest must be resolved.
	imageUnclear
)

// judgeImage is pure. was is what ran before the claim; known is false if there
// is no record. A container whose image was changed must be another one than on
// record: a kubelet may report an old container under a new tag of its digest.
func judgeImage(c *corev1.Container, s *corev1.ContainerStatus, was ran, known bool) imageState {
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

// runsItsImages: every container runs the image of its spec. unclear lists the
// containers whose digest must be resolved to know. It is pure.
func runsItsImages(pod *corev1.Pod) (all bool, unclear []string) {
	record := onRecord(pod)
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

// resolves: the digests of the unclear containers are those of their images, and
// every other container runs its image.
func (r *SandboxPoolReconciler) resolves(ctx context.Context, pod *corev1.Pod, unclear []string) (bool, error) {
	if r.DigestResolver == nil {
		return false, nil
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		s := statusOf(pod, c.Name)
		if !slices.Contains(unclear, c.Name) {
			was, known := onRecord(pod)[c.Name]
			if judgeImage(c, s, was, known) != imageRuns {
				return false, nil
			}
			continue
		}
		digests, err := r.DigestResolver.ResolveDigests(ctx, c.Image)
		if err != nil || !slices.Contains(digests, digestOf(s.ImageID)) {
			return false, err
		}
	}
	return true, nil
}

// resolve turns a pod running whose images are reported under other names.
func (r *SandboxPoolReconciler) resolve(ctx context.Context, pool *v1alpha1.SandboxPool, tpl *poolTemplate, pod *corev1.Pod, left time.Duration) (time.Duration, error) {
	_, unclear := runsItsImages(pod)
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
