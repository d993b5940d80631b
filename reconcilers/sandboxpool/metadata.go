package sandboxpool

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/podtemplate"
)

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
	return podtemplate.CopyKeys(&pool.Labels, template.Labels, ofPools)
}

// SyncAnnotationsFromTemplate does the same for annotations.
func SyncAnnotationsFromTemplate(pool *v1alpha1.SandboxPool, template *v1alpha1.SandboxTemplate) bool {
	return podtemplate.CopyKeys(&pool.Annotations, template.Annotations, ofPools)
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
