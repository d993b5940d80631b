package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/local/node/images"
)

// localImages is what the names in the image table begin with.
const localImages = "local/"

// progressEvery is the time between two notes of a pull's progress in the pod's status, eventEvery
// that between two Events of it, which `kubectl describe` shows.
const progressEvery, eventEvery = 2 * time.Second, 10 * time.Second

// findImage returns the image of a container: of the image table, else of a registry. Its
// errors are of type waitingError.
func (c *container) findImage(want *corev1.Container) (images.Entry, error) {
	rt := c.pod.rt
	image, err := images.Lookup(rt.opts.Images, want.Image)
	var unknown *images.UnknownError
	if !errors.As(err, &unknown) {
		if err != nil {
			return images.Entry{}, &waitingError{"ErrImagePull", err}
		}
		return image, nil
	}
	if strings.HasPrefix(want.Image, localImages) {
		return images.Entry{}, &waitingError{"ErrImagePull", err} // a registry's image of that name is another one
	}
	if rt.bridge == nil {
		return images.Entry{}, &waitingError{"ErrImagePull", fmt.Errorf("image %q: images of registries need pods with file systems of their own: run `sandlane up` as root", want.Image)}
	}
	pulled, err := c.pull(c.pod.stop, want)
	if errors.Is(err, images.ErrNotHere) {
		return images.Entry{}, &waitingError{"ErrImageNeverPull", err}
	}
	if err != nil {
		return images.Entry{}, &waitingError{"ErrImagePull", err}
	}
	if image, err = pulled.Entry(); err != nil {
		return images.Entry{}, &waitingError{"CreateContainerConfigError", fmt.Errorf("image %q: %w", want.Image, err)}
	}
	if len(image.Command)+len(image.Args)+len(want.Command)+len(want.Args) == 0 {
		return images.Entry{}, &waitingError{"CreateContainerConfigError", fmt.Errorf("image %q names no command, and neither does the container", want.Image)}
	}
	return image, nil
}

// pull gets an image as the container's pull policy says, and shows its progress.
func (c *container) pull(ctx context.Context, want *corev1.Container) (*images.Image, error) {
	policy := images.IfNotPresent
	switch want.ImagePullPolicy {
	case corev1.PullAlways:
		policy = images.Always
	case corev1.PullNever:
		policy = images.Never
	}
	shown, told := time.Now(), time.Time{}
	pulled, err := c.pod.rt.images.Ensure(ctx, want.Image, policy, func(done, total int64) {
		if time.Since(shown) < progressEvery {
			return
		}
		shown = time.Now()
		progress := fmt.Sprintf("pulled %d of %d MB of %s", done>>20, total>>20, want.Image)
		if time.Since(told) >= eventEvery {
			told = time.Now()
			c.pod.event(corev1.EventTypeNormal, "Pulling", "container %s: %s", c.name(), progress)
		}
		c.set(func(s *corev1.ContainerStatus) {
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating", Message: progress}}
		})
	})
	if err != nil {
		return nil, err
	}
	c.pulled.Release()
	c.pulled = pulled
	return pulled, nil
}
