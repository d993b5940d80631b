package sandboxpool

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/internal/condition"
)

// indexPrefix is the field index of pools by their idPrefix.
const indexPrefix = "idPrefix"

func prefixOf(pool *v1alpha1.SandboxPool) string {
	if f := pool.Spec.FirstRequest; f != nil {
		return f.IDPrefix
	}
	return ""
}

func prefixesOf(o client.Object) []string {
	if prefix := prefixOf(o.(*v1alpha1.SandboxPool)); prefix != "" {
		return []string{prefix}
	}
	return nil
}

// reservation says whether the pool's idPrefix binds other namespaces; nil for a pool without
// one. It does if the administrator allows it for the pool's namespace, and the oldest of all
// such pools that have reserved all of these IDs is in that namespace.
func (r *SandboxPoolReconciler) reservation(ctx context.Context, pool *v1alpha1.SandboxPool) (*metav1.Condition, error) {
	prefix := prefixOf(pool)
	if prefix == "" {
		return nil, nil
	}
	allowed, err := r.allowsPrefix(ctx, pool.Namespace, prefix)
	if err != nil {
		return nil, err
	}
	if !allowed {
		c := condition.Of(v1alpha1.PoolConditionIDPrefix, false, "NotAllowed",
			fmt.Sprintf("only pools of this namespace leave IDs with the prefix %s to this pool: the namespace's annotation %s does not allow it", prefix, v1alpha1.AnnotationIDPrefixes))
		return &c, nil
	}
	oldest := pool
	for end := range len(prefix) {
		var pools v1alpha1.SandboxPoolList
		err := r.Client.List(ctx, &pools, client.MatchingFields{indexPrefix: prefix[:end+1]}, client.UnsafeDisableDeepCopy) // they are only read
		if err != nil {
			return nil, fmt.Errorf("listing pools by idPrefix: %w", err)
		}
		for i := range pools.Items {
			other := &pools.Items[i]
			if !older(other, oldest) {
				continue
			}
			allowed, err := r.allowsPrefix(ctx, other.Namespace, prefixOf(other))
			if err != nil {
				return nil, err
			}
			if allowed {
				oldest = other
			}
		}
	}
	if oldest.Namespace != pool.Namespace {
		c := condition.Of(v1alpha1.PoolConditionIDPrefix, false, "Taken",
			"an older pool of another namespace has reserved all IDs with the prefix "+prefixOf(oldest))
		return &c, nil
	}
	c := condition.Of(v1alpha1.PoolConditionIDPrefix, true, "Reserved",
		"no pool of another namespace makes sandboxes whose IDs begin with "+prefix+", but where an older one has reserved a longer prefix")
	return &c, nil
}

// older reports whether a was made before b, or at the same second and has the lesser UID.
func older(a, b *v1alpha1.SandboxPool) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.UID < b.UID
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// allowsPrefix reports whether the administrator lets pools of a namespace reserve a prefix.
func (r *SandboxPoolReconciler) allowsPrefix(ctx context.Context, namespace, prefix string) (bool, error) {
	ns := &corev1.Namespace{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: namespace}, ns, client.UnsafeDisableDeepCopy) // it is only read
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("reading namespace %s: %w", namespace, err)
	}
	for allowed := range strings.SplitSeq(ns.Annotations[v1alpha1.AnnotationIDPrefixes], ",") {
		if allowed = strings.TrimSpace(allowed); allowed != "" && strings.HasPrefix(prefix, allowed) {
			return true, nil
		}
	}
	return false, nil
}
