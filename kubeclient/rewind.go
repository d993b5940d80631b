package kubeclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/kubeclient/backoff"
)

// ErrRewound says that the API server shows an older state than this process has
// seen, as after a restore of etcd.
var ErrRewound = errors.New("the API server has gone back to an older state")

const (
	// rewindEvery is the time between two looks; rewindTimeout bounds one of them.
	rewindEvery   = 10 * time.Second
	rewindTimeout = 5 * time.Second
	// writeDownTimeout bounds the calls of BeforeEnd.
	writeDownTimeout = time.Minute
)

// RewindGuard ends a process whose caches are ahead of the API server. A watch from a
// version that the server has not reached is no error: it is silent until the versions
// have come so far, and what was written until then is never seen. So a cache stays as
// it was before the restore, and nothing but a new list heals it.
//
// It compares the version that a cache shows with that of a consistent list which is
// sent afterwards, which is never the older one otherwise. It is a manager.Runnable
// for every replica: one that waits to lead has caches too.
type RewindGuard struct {
	// Caches are the manager's.
	Caches cache.Informers
	// Live reads from the API server, and from no cache.
	Live client.Reader
	// Kinds are those to look at, one for each etcd that keeps what is cached.
	Kinds []Kind
	// BeforeEnd writes down what the process alone knows, since its successor reads what
	// the API server shows now. After an error it is called again, for a minute at most:
	// the caches show less and less. Nil means nothing to do.
	BeforeEnd func(context.Context) error
}

// Kind is a cached kind: an empty object and an empty list of it.
type Kind struct {
	Object client.Object
	List   client.ObjectList
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*RewindGuard) NeedLeaderElection() bool { return false }

// Start looks every ten seconds until the context ends, and then returns nil. It
// returns ErrRewound if a cache is ahead, which ends a manager. An API server that does
// not answer says nothing.
func (g *RewindGuard) Start(ctx context.Context) error {
	tick := time.NewTicker(rewindEvery)
	defer tick.Stop()
	for {
		for _, k := range g.Kinds {
			if err := g.compare(ctx, k); err != nil {
				if g.BeforeEnd != nil && errors.Is(err, ErrRewound) {
					err = errors.Join(err, g.beforeEnd(ctx))
				}
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// beforeEnd calls BeforeEnd until it succeeds or its time is over.
func (g *RewindGuard) beforeEnd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeDownTimeout)
	defer cancel()
	for delays := backoff.Doubling(100*time.Millisecond, rewindTimeout); ; {
		err := g.BeforeEnd(ctx)
		if err == nil {
			return nil
		}
		if !backoff.Sleep(ctx, delays.Step()) {
			return fmt.Errorf("write down what this process alone knows: %w", err)
		}
	}
}

// compare looks at one kind.
func (g *RewindGuard) compare(ctx context.Context, k Kind) error {
	ctx, cancel := context.WithTimeout(ctx, rewindTimeout)
	defer cancel()
	informer, err := g.Caches.GetInformer(ctx, k.Object, cache.BlockUntilSynced(false))
	if err != nil {
		if ctx.Err() != nil {
			return nil // the process ends
		}
		return fmt.Errorf("look at the cache of %T: %w", k.Object, err)
	}
	versioned, ok := informer.(interface{ LastSyncResourceVersion() string })
	if !ok {
		return fmt.Errorf("look at the cache of %T: %T does not tell its resourceVersion", k.Object, informer)
	}
	cached := versioned.LastSyncResourceVersion() // before the list is sent
	list := k.List.DeepCopyObject().(client.ObjectList)
	if cached == "" || g.Live.List(ctx, list, client.Limit(1)) != nil {
		return nil
	}
	if order, err := resourceversion.CompareResourceVersion(list.GetResourceVersion(), cached); err == nil && order < 0 {
		return fmt.Errorf("%w (a restored etcd?): a list of %T is of resourceVersion %s, the cache of %s; this process ends, since its next start reads everything anew",
			ErrRewound, k.List, list.GetResourceVersion(), cached)
	}
	return nil
}
