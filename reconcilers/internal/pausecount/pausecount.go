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
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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

// Rooms are the sandboxes that timeouts are pausing. The reconcilers of one manager share them. The
// zero value is ready.
type Rooms struct {
	mu    sync.Mutex // guards taken
	taken map[string]asTaken
}

// asTaken is a sandbox as it was when it took room.
type asTaken struct {
	pool  string
	uid   types.UID
	order int64 // its pauseOrder; its pause has a later one
}

// Take reports whether a timeout may pause the sandbox in the mode of its timeouts: its pool allows
// that mode, and, if it keeps its pod, has fewer paused sandboxes than it may. If so, it counts as
// paused from now on; call GiveBack if its pause is not written, or may not be: one too many is
// better than room that nothing gives back, for want of which others end.
func (r *Rooms) Take(ctx context.Context, cache client.Reader, s *v1alpha1.Sandbox) (bool, error) {
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
	r.mu.Lock()
	defer r.mu.Unlock()
	others := 0
	for name, as := range r.taken {
		shown, err := as.shown(ctx, cache, name)
		switch {
		case err != nil:
			return false, err
		case shown:
			delete(r.taken, name)
		case name != s.Name && as.pool == poolOf(s):
			others++
		}
	}
	// Count is called last: what the cache shows in between counts twice, and is never missed.
	n, err := Count(ctx, cache, s.Spec.Namespace, s.Spec.Pool)
	if err != nil || n+others >= most {
		return false, err
	}
	if r.taken == nil {
		r.taken = map[string]asTaken{}
	}
	r.taken[s.Name] = asTaken{poolOf(s), s.UID, s.Spec.PauseOrder}
	return true, nil
}

// GiveBack takes back that the sandbox counts as paused.
func (r *Rooms) GiveBack(s *v1alpha1.Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.taken, s.Name)
}

// shown reports whether the cache shows what has become of a sandbox since it took room.
func (as asTaken) shown(ctx context.Context, cache client.Reader, name string) (bool, error) {
	s := &v1alpha1.Sandbox{}
	err := cache.Get(ctx, client.ObjectKey{Name: name}, s)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading a sandbox that is being paused: %w", err)
	}
	return s.UID != as.uid || s.Spec.PauseOrder > as.order || s.Spec.End != nil, nil
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
