// Package pausecount counts, in the manager's cache, the paused sandboxes of a pool that keep
// their pods. The reconcilers of sandboxes and of idle timeouts take Rooms before a timeout
// pauses one more; the reconciler of pools writes Count to the status. Call AddIndex first.
//
// The cache may be behind; a sandbox that took room counts until the cache shows its pause. What
// gateways pause meanwhile is not counted: together they may exceed the pool's limit by a few.
// All is safe for concurrent use.
package pausecount

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/pauseroom"
)

// IndexPool is the field index of paused Sandboxes that keep their pods, by their pool.
const IndexPool = "paused.pool"

// PoolsOf are the values of IndexPool.
func PoolsOf(o client.Object) []string {
	s := o.(*v1alpha1.Sandbox)
	if !s.Spec.Paused || s.Spec.End != nil || s.Spec.Binding == nil {
		return nil
	}
	return []string{poolOf(s)}
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

// TakeRoom reports whether a timeout may pause the sandbox in the mode of its timeouts: its pool
// allows that mode, and, if it keeps its pod, rooms have room for it. Call rooms.GiveBack if its
// pause is not written, or may not be.
func TakeRoom(ctx context.Context, rooms *pauseroom.Rooms, cache client.Reader, s *v1alpha1.Sandbox) (bool, error) {
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
	return rooms.Take(ctx, watch{cache}, s, most)
}

// watch is the manager's cache as a pauseroom.Watch.
type watch struct{ cache client.Reader }

func (w watch) Paused(ctx context.Context, namespace, pool string) (int, error) {
	return Count(ctx, w.cache, namespace, pool)
}

func (w watch) PauseOrder(ctx context.Context, id string) (types.UID, int64, error) {
	s := &v1alpha1.Sandbox{}
	err := client.IgnoreNotFound(w.cache.Get(ctx, client.ObjectKey{Name: id}, s))
	if err != nil || s.Spec.End != nil {
		return "", 0, err
	}
	return s.UID, s.Spec.PauseOrder, nil
}

func poolOf(s *v1alpha1.Sandbox) string { return key(s.Spec.Namespace, s.Spec.Pool) }

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
