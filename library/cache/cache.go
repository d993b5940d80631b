package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// pollInterval is the time between two reads of the API server by a waiting task.
const pollInterval = 10 * time.Second

// Cache is the Provider. NewCache makes it. Its methods are safe for concurrent use.
type Cache struct {
	mgr     ctrl.Manager
	isOwned bool
	hooks   *WaitHooks
	poll    time.Duration

	sandboxes   *Controller[*v1alpha1.Sandbox]
	pools       *Controller[*v1alpha1.SandboxPool]
	unsubscribe []func() error

	mu      sync.Mutex // guards the rest
	started bool       // by Run
	cancel  context.CancelFunc
	ended   chan struct{} // closed when an owned manager has returned; nil before Run
	err     error         // why it is stopped; set before stopped is closed
	stopped chan struct{}
}

// NewCache makes a Cache of a manager, before or after the manager is started. If
// NewControllerManager made the manager, the Cache starts and ends it; otherwise the program
// does, and should have made the manager's cache with BuildCacheConfig. NewCache adds the
// indexes of GetIndexFuncs, so call it once for a manager.
func NewCache(mgr ctrl.Manager) (*Cache, error) {
	_, isOwned := mgr.(interface{ owned() })
	c := &Cache{mgr: mgr, isOwned: isOwned, hooks: newWaitHooks(), poll: pollInterval, stopped: make(chan struct{})}
	c.sandboxes = newController(mgr, "sandlane-cache-sandboxes", func() *v1alpha1.Sandbox { return &v1alpha1.Sandbox{} })
	c.pools = newController(mgr, "sandlane-cache-pools", func() *v1alpha1.SandboxPool { return &v1alpha1.SandboxPool{} })
	if err := AddIndexesToCache(mgr.GetCache()); err != nil {
		return nil, err
	}
	if err := errors.Join(c.feed(&v1alpha1.Sandbox{}, KindSandbox), c.feed(&v1alpha1.Checkpoint{}, KindCheckpoint)); err != nil {
		return nil, err
	}
	if !isOwned {
		if err := mgr.Add(endWith{c}); err != nil {
			return nil, fmt.Errorf("making a cache: %w", err)
		}
	}
	return c, nil
}

// feed makes the informer of a kind notify the tasks that wait for its objects.
func (c *Cache) feed(o client.Object, kind string) error {
	informer, err := c.mgr.GetCache().GetInformer(context.Background(), o, ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("making the informer of %T: %w", o, err)
	}
	handle, err := informer.AddEventHandler(c.hooks.handler(kind))
	if err != nil {
		return fmt.Errorf("listening to the informer of %T: %w", o, err)
	}
	c.unsubscribe = append(c.unsubscribe, func() error { return informer.RemoveEventHandler(handle) })
	return nil
}

// endWith is a Runnable of a foreign manager that ends the Cache when the manager ends.
type endWith struct{ c *Cache }

// Start implements manager.Runnable.
func (e endWith) Start(ctx context.Context) error {
	<-ctx.Done()
	e.c.end(errors.New("its manager has ended"))
	return nil
}

// NeedLeaderElection returns false: it runs in every replica.
func (endWith) NeedLeaderElection() bool { return false }

var _ manager.LeaderElectionRunnable = endWith{}

// Run implements Provider.
func (c *Cache) Run(ctx context.Context) error {
	if !c.isOwned {
		return errors.New("running the cache: NewControllerManager did not make its manager, so the program must start the manager itself")
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	c.mu.Lock()
	err := c.err
	switch {
	case err != nil:
	case c.started:
		err = errors.New("it runs already")
	default:
		c.started, c.cancel, c.ended = true, cancel, ended
	}
	c.mu.Unlock()
	if err != nil {
		cancel()
		return fmt.Errorf("running the cache: %w", err)
	}
	go func() {
		defer close(ended)
		defer cancel()
		err := c.mgr.Start(ctx)
		switch {
		case err != nil:
			c.end(fmt.Errorf("its manager has failed: %w", err))
		default:
			c.end(errors.New("its context has ended"))
		}
	}()
	// The wait also ends when the manager returns, because that cancels ctx.
	if c.mgr.GetCache().WaitForCacheSync(ctx) && ctx.Err() == nil {
		return nil
	}
	<-ended
	return fmt.Errorf("running the cache: %w", c.usable())
}

// Stop implements Provider.
func (c *Cache) Stop(ctx context.Context) {
	c.end(errors.New("Stop was called"))
	c.mu.Lock()
	cancel, ended := c.cancel, c.ended
	c.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// end stops the Cache. Only the first call has an effect; its reason is kept.
func (c *Cache) end(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = fmt.Errorf("%w: %w", ErrStopped, why)
	close(c.stopped)
	if !c.isOwned {
		for _, f := range c.unsubscribe {
			_ = f() // fails if the informer has ended, which does not matter
		}
	}
}

// usable returns nil, or the reason for which the Cache is stopped.
func (c *Cache) usable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// GetClient implements Provider.
func (c *Cache) GetClient() client.Client {
	return guardedClient{Client: c.mgr.GetClient(), usable: c.usable}
}

// GetAPIReader implements Provider.
func (c *Cache) GetAPIReader() client.Reader {
	return guardedReader{c.mgr.GetAPIReader(), c.usable}
}

// GetSandboxController returns the controller that calls handlers for each change of a
// Sandbox.
func (c *Cache) GetSandboxController() *Controller[*v1alpha1.Sandbox] { return c.sandboxes }

// GetSandboxPoolController returns the controller that calls handlers for each change of a
// SandboxPool.
func (c *Cache) GetSandboxPoolController() *Controller[*v1alpha1.SandboxPool] { return c.pools }

// GetWaitHooks returns the hooks that tasks hold.
func (c *Cache) GetWaitHooks() *WaitHooks { return c.hooks }
