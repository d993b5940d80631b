package sandboxpool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// reserved is the prefix of the labels and annotations that are Sandlane's own: a
// template that sets one could forge a claim.
const reserved = "sandlane.dev/"

// Keys that no pool takes from its template: Sandlane's own, and those by which kubectl, Argo
// CD, Helm and Flux tell which objects are theirs to change and to delete. On a pool they
// would make it a part of what the template came with.
var (
	// foreignDomains stand before a key's slash, also with further labels before them.
	foreignDomains = []string{"sandlane.dev", "applyset.kubernetes.io", "argocd.argoproj.io", "helm.sh", "fluxcd.io", "fluxcd.controlplane.io"}
	foreignKeys    = []string{"kubectl.kubernetes.io/last-applied-configuration", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by"}
)

// SyncLabelsFromTemplate gives the pool the SandboxTemplate's own labels, and reports whether
// that changed any: the template's value wins. Sandlane's own keys, and those of tools that
// track objects, are left as they are, and so is a label that the template has no more.
func SyncLabelsFromTemplate(pool *v1alpha1.SandboxPool, template *v1alpha1.SandboxTemplate) bool {
	return copyKeys(&pool.Labels, template.Labels, ofPools)
}

// SyncAnnotationsFromTemplate does the same for annotations.
func SyncAnnotationsFromTemplate(pool *v1alpha1.SandboxPool, template *v1alpha1.SandboxTemplate) bool {
	return copyKeys(&pool.Annotations, template.Annotations, ofPools)
}

// syncMetadata writes what the pool lacks of its SandboxTemplate's labels and annotations;
// a template embedded in the pool has none.
func (r *SandboxPoolReconciler) syncMetadata(ctx context.Context, pool *v1alpha1.SandboxPool) error {
	ref := pool.Spec.TemplateRef
	if ref == nil || pool.DeletionTimestamp != nil {
		return nil
	}
	var template v1alpha1.SandboxTemplate
	err := r.Client.Get(ctx, client.ObjectKey{Name: ref.Name}, &template, client.UnsafeDisableDeepCopy) // it is only read
	if apierrors.IsNotFound(err) {
		return nil // template says so
	}
	if err != nil {
		return fmt.Errorf("reading template %s: %w", ref.Name, err)
	}
	before := pool.DeepCopy()
	labels, annotations := SyncLabelsFromTemplate(pool, &template), SyncAnnotationsFromTemplate(pool, &template)
	if !labels && !annotations {
		return nil
	}
	if err := r.Client.Patch(ctx, pool, client.MergeFrom(before)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("giving the pool its template's labels and annotations: %w", err)
	}
	return nil
}

// ofPools reports whether pools take a key from their template.
func ofPools(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return !slices.Contains(foreignKeys, key) && !slices.ContainsFunc(foreignDomains, func(d string) bool {
		return domain == d || strings.HasSuffix(domain, "."+d)
	})
}

// ofPods reports whether pods take a key from their pod template.
func ofPods(key string) bool { return !strings.HasPrefix(key, reserved) }

// copyKeys copies the keys that may be taken, and reports whether that changed any.
func copyKeys(to *map[string]string, from map[string]string, taken func(string) bool) (changed bool) {
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
