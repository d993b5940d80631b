package sandboxpool

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/reconcilers/sandboxpool/podtemplate"
)

// pluginAnswers remembers what the plugins last said of each pool. It is safe for concurrent use.
type pluginAnswers struct {
	mu    sync.Mutex
	pools map[types.NamespacedName]pluginAnswer
}

// pluginAnswer is what the plugins said of a generation; accepted is the last one that
// passed.
type pluginAnswer struct {
	uid        types.UID
	generation int64
	refusal    *podtemplate.Error
	accepted   *v1alpha1.SandboxPool
}

func (p *pluginAnswers) of(key types.NamespacedName, uid types.UID) pluginAnswer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.pools[key]; v.uid == uid {
		return v
	}
	return pluginAnswer{uid: uid}
}

func (p *pluginAnswers) set(key types.NamespacedName, v pluginAnswer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pools == nil {
		p.pools = map[types.NamespacedName]pluginAnswer{}
	}
	p.pools[key] = v
}

func (p *pluginAnswers) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pools, key)
}

// askPlugins asks the plugins about a generation that they have not judged. A refusal
// is a templateError. What they change is written to pool and to the API; a pool
// that was changed meanwhile is an error, and judged anew.
func (r *SandboxPoolReconciler) askPlugins(ctx context.Context, pool *v1alpha1.SandboxPool) (*podtemplate.Error, error) {
	if r.PluginManager == nil || pool == nil || pool.DeletionTimestamp != nil {
		return nil, nil
	}
	key := client.ObjectKeyFromObject(pool)
	v := r.pluginAnswers.of(key, pool.UID)
	if v.generation == pool.Generation {
		return v.refusal, nil
	}
	next := pool.DeepCopy()
	var err error
	if v.accepted == nil && pool.Status.ObservedGeneration == 0 {
		err = r.PluginManager.PreCreatePool(ctx, next)
	} else {
		err = r.PluginManager.PreUpdatePool(ctx, v.accepted, next)
	}
	if err != nil {
		v.generation, v.refusal = pool.Generation, &podtemplate.Error{Reason: "RefusedByPlugin", Message: err.Error()}
		r.pluginAnswers.set(key, v)
		return v.refusal, nil
	}
	next.Status, next.Finalizers = pool.Status, pool.Finalizers
	if !equality.Semantic.DeepEqual(pool, next) {
		err := r.Client.Patch(ctx, next, client.MergeFromWithOptions(pool.DeepCopy(), client.MergeFromWithOptimisticLock{}))
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("writing what a plugin changed: %w", err)
		}
		next.DeepCopyInto(pool)
	}
	r.pluginAnswers.set(key, pluginAnswer{uid: pool.UID, generation: pool.Generation, accepted: pool.DeepCopy()})
	return nil, nil
}
