package sandbox

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/reconcilers/internal/pausecount"
)

// PauseIdle pauses an idle sandbox that has a pod, as the commit of its idle release with this
// token. It returns false if the sandbox is to be ended instead: its timeouts do not pause it,
// its pod cannot be frozen, its pool does not allow that or has as many paused sandboxes as it
// may, or nothing keeps its files. A release that has been called off is true, and pauses nothing.
func (r *Reconciler) PauseIdle(ctx context.Context, s *v1alpha1.Sandbox, token string) (bool, error) {
	if s.Spec.Timeouts.OnTimeout != v1alpha1.TimeoutPause {
		return false, nil
	}
	for _, reader := range []client.Reader{r.Client, r.APIReader} { // the cache may not show the pod yet
		pod, err := boundPod(ctx, reader, s)
		if err != nil {
			return false, err
		}
		if pod == nil || !v1alpha1.Backs(pod, s) {
			continue
		}
		if !v1alpha1.Freezable(&pod.Spec) {
			return false, nil
		}
		return r.pauseByTimeout(ctx, s, writes.PauseIdle(s, token))
	}
	return false, nil
}

// pauseByTimeout writes the pause of a sandbox whose timeout has passed. It returns false if the
// sandbox is to be ended instead, since there is no room for it among those that are paused. A
// refused write is no error: the sandbox has changed, and the event of that queues it.
func (r *Reconciler) pauseByTimeout(ctx context.Context, s *v1alpha1.Sandbox, p writes.Patch) (bool, error) {
	room, err := r.takeRoom(ctx, s)
	if err != nil || !room {
		return false, err
	}
	err = r.write(ctx, s, p)
	if err != nil {
		r.rooms.GiveBack(s)
	}
	if err != nil && !writes.Moved(err) {
		return false, fmt.Errorf("pausing sandbox %s, whose time is up: %w", s.Name, err)
	}
	return true, nil
}

// takeRoom reports whether a timeout may pause the sandbox in the mode of its timeouts: its pool
// allows that mode, its files are kept somewhere if it hibernates, and, if it keeps its pod, its
// pool has room for one more that is paused.
func (r *Reconciler) takeRoom(ctx context.Context, s *v1alpha1.Sandbox) (bool, error) {
	pool, err := r.poolOf(ctx, s)
	if err != nil {
		return false, err
	}
	most, limited := v1alpha1.MaxPaused(pool)
	mode := v1alpha1.TimeoutMode(s)
	switch {
	case !v1alpha1.AllowsPause(pool, mode):
		return false, nil
	case mode == v1alpha1.PauseHibernate:
		return r.Hibernates, nil
	case !limited:
		return true, nil
	}
	return r.rooms.Take(ctx, watch{r.Client}, s, most)
}

// watch is the manager's cache as a pauseroom.Watch.
type watch struct{ cache client.Reader }

func (w watch) Paused(ctx context.Context, namespace, pool string) (int, error) {
	return pausecount.Count(ctx, w.cache, namespace, pool)
}

func (w watch) PauseOrder(ctx context.Context, id string) (types.UID, int64, error) {
	s := &v1alpha1.Sandbox{}
	err := client.IgnoreNotFound(w.cache.Get(ctx, client.ObjectKey{Name: id}, s))
	if err != nil || s.Spec.End != nil {
		return "", 0, err
	}
	return s.UID, s.Spec.PauseOrder, nil
}

// poolOf reads the spec of a sandbox's pool; nil if the pool is gone.
func (r *Reconciler) poolOf(ctx context.Context, s *v1alpha1.Sandbox) (*v1alpha1.SandboxPoolSpec, error) {
	pool := &v1alpha1.SandboxPool{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.Spec.Namespace, Name: s.Spec.Pool}, pool)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading pool %s: %w", s.Spec.Pool, err)
	}
	return &pool.Spec, nil
}
