package podtemplate

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// reserved is the prefix of the labels and annotations that are Sandlane's own: a
// template that sets one could forge a claim.
const reserved = "sandlane.dev/"

// ofPods reports whether pods take a key from their pod template.
func ofPods(key string) bool { return !strings.HasPrefix(key, reserved) }

// CopyKeys copies the keys that may be taken, and reports whether that changed any.
func CopyKeys(to *map[string]string, from map[string]string, taken func(string) bool) (changed bool) {
	for k, v := range from {
		if was, ok := (*to)[k]; !taken(k) || ok && was == v {
			continue
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[k], changed = v, true
	}
	return changed
}

// HooksOf reads the post-start hooks of the template that the pod was made from.
func HooksOf(pod *corev1.Pod) ([]v1alpha1.PostStartHook, error) {
	var hooks []v1alpha1.PostStartHook
	if err := json.Unmarshal([]byte(pod.Annotations[v1alpha1.AnnotationPostStartHooks]), &hooks); err != nil {
		return nil, fmt.Errorf("reading the pod's post-start hooks: %w", err)
	}
	return hooks, nil
}

// EncodeHooks is the value of AnnotationPostStartHooks.
func EncodeHooks(hooks []v1alpha1.PostStartHook) string {
	raw, err := json.Marshal(hooks)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(raw)
}
