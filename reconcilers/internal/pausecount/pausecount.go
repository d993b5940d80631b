// Package pausecount counts, in the manager's cache, the paused sandboxes of a pool that keep
// their pods. The reconcilers of sandboxes and of idle timeouts ask Room before a timeout
// pauses one more; the reconciler of pools writes Count to the status. Call AddIndex first.
//
// The cache may be behind: sandboxes whose timeouts pass at the same moment may together
// exceed the pool's limit by as many as are reconciled at once. The functions are safe for
// concurrent use.
package pausecount

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// Room reports whether a timeout may pause the sandbox in the mode of its timeouts: its
// pool allows that mode, and, if it keeps its pod, has fewer paused sandboxes than it may.
func Room(ctx context.Context, cache client.Reader, s *v1alpha1.Sandbox) (bool, error) {
	pool, err := Pool(ctx, cache, s)
	if err != nil {
		return false, err
	}
	most, limited := v1alpha1.MaxPaused(pool)
	mode := v1alpha1.TimeoutMode(s)
	switch {
	case !v1alpha1.AllowsPause(pool, mode):
		return false, nil
	case !limited, mode == v1alpha1.PauseHibernate:
		return true, nil
	}
	n, err := Count(ctx, cache, s.Spec.Namespace, s.Spec.Pool)
	return n < most, err
}

// Pool reads the spec of a sandbox's pool; nil if the pool is gone.
func Pool(ctx context.Context, cache client.Reader, s *v1alpha1.Sandbox) (*v1alpha1.SandboxPoolSpec, error) {
	pool := &v1alpha1.SandboxPool{}
	err := cache.Get(ctx, client.ObjectKey{Namespace: s.Spec.Namespace, Name: s.Spec.Pool}, pool)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading pool %s: %w", s.Spec.Pool, err)
	}
	return &pool.Spec, nil
}
