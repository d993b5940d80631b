// Package pausecount counts, in the manager's cache, the paused sandboxes of a pool that keep
// their pods: for the pool's status, and before a timeout pauses one more. Call AddIndex first.
// All is safe for concurrent use.
package pausecount

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// IndexPool is the field index of paused Sandboxes that keep their pods, by their pool.
const IndexPool = "paused.pool"

// PoolsOf are the values of IndexPool.
func PoolsOf(o client.Object) []string {
	s := o.(*v1alpha1.Sandbox)
	if !s.Spec.Paused || s.Spec.End != nil || s.Spec.Binding == nil {
		return nil
	}
	return []string{key(s.Spec.Namespace, s.Spec.Pool)}
}

func key(namespace, pool string) string { return namespace + "/" + pool }

// AddIndex registers IndexPool. Call it once per manager, before the manager starts.
func AddIndex(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &v1alpha1.Sandbox{}, IndexPool, PoolsOf); err != nil {
		return fmt.Errorf("indexing paused sandboxes: %w", err)
	}
	return nil
}

// Count returns how many paused sandboxes of a pool keep their pods.
func Count(ctx context.Context, cache client.Reader, namespace, pool string) (int, error) {
	var all v1alpha1.SandboxList
	err := cache.List(ctx, &all, client.MatchingFields{IndexPool: key(namespace, pool)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return 0, fmt.Errorf("listing the paused sandboxes of pool %s: %w", key(namespace, pool), err)
	}
	return len(all.Items), nil
}
