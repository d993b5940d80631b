package sandboxpool

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// reserved is the prefix of the labels and annotations that are Sandlane's own: a
// template that sets one could forge a claim.
const reserved = "sandlane.dev/"

// SyncLabelsFromTemplate gives the pod the template's labels, but for Sandlane's
// own, and reports whether that changed any.
func SyncLabelsFromTemplate(pod *corev1.Pod, template *corev1.PodTemplateSpec) bool {
	return copyKeys(&pod.Labels, template.Labels)
}

// SyncAnnotationsFromTemplate does the same for annotations.
func SyncAnnotationsFromTemplate(pod *corev1.Pod, template *corev1.PodTemplateSpec) bool {
	return copyKeys(&pod.Annotations, template.Annotations)
}

func copyKeys(to *map[string]string, from map[string]string) (changed bool) {
	if *to == nil {
		*to = map[string]string{}
	}
	for k, v := range from {
		if was, ok := (*to)[k]; strings.HasPrefix(k, reserved) || ok && was == v {
			continue
		}
		(*to)[k], changed = v, true
	}
	return changed
}

// hooksOf reads the post-start hooks of the template that the pod was made from.
func hooksOf(pod *corev1.Pod) ([]v1alpha1.PostStartHook, error) {
	var hooks []v1alpha1.PostStartHook
	if err := json.Unmarshal([]byte(pod.Annotations[v1alpha1.AnnotationPostStartHooks]), &hooks); err != nil {
		return nil, fmt.Errorf("reading the pod's post-start hooks: %w", err)
	}
	return hooks, nil
}

// encodeHooks is the value of AnnotationPostStartHooks.
func encodeHooks(hooks []v1alpha1.PostStartHook) string {
	raw, err := json.Marshal(hooks)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(raw)
}

// IdleContainerImages returns the images that a pod of the pool runs until it is
// claimed, by container. template is the one that the pool refers to; nil for one
// with a template of its own.
func IdleContainerImages(pool *v1alpha1.SandboxPool, template *v1alpha1.SandboxTemplateSpec) (map[string]string, error) {
	if pool.Spec.Template != nil {
		template = pool.Spec.Template
	}
	if template == nil || len(template.Template.Spec.Containers) == 0 {
		return nil, errors.New("the pool has no template with containers")
	}
	t, err := render(template, pool.Spec.PodCreationImagePolicy)
	if err != nil {
		return nil, err
	}
	images := map[string]string{}
	for i := range t.pod.Spec.Containers {
		images[t.pod.Spec.Containers[i].Name] = t.pod.Spec.Containers[i].Image
	}
	return images, nil
}
