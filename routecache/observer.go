package routecache

import "context"

// Observer shows the cached routes elsewhere: what it shows is a part of what Get
// returns, at any moment, and a fence waits for the readers of it.
//
// Added, Removed and Used are called under the lock of the route's shard; they must
// neither block nor call the cache.
type Observer interface {
	// Added may show a route that is cached. It calls the route's SetShown if it does.
	Added(*Route)
	// Removed hides a route for good, before it leaves the cache. It sets Shown to 0.
	Removed(*Route)
	// Used reports whether the route was used where it is shown since the last call.
	Used(*Route) bool
	// Wait returns nil when no reader is about to use a route that was removed before the
	// call, or the context's error.
	Wait(context.Context) error
}

// SetObserver sets the cache's observer. Call it before anything is put.
func (c *Cache) SetObserver(o Observer) {
	c.observer = o
	for i := range c.shards {
		c.shards[i].observer = o
	}
}

// Withdraw hides the sandbox's route from the observer. The route stays cached, and
// the next Get shows it again if the observer takes it.
func (c *Cache) Withdraw(id string) {
	if c.observer == nil {
		return
	}
	s, _ := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.lru.Peek(id); ok {
		c.observer.Removed(r)
	}
}

// WaitObserved returns nil when no reader is about to use a route that the observer has
// hidden before the call, or the context's error.
func (c *Cache) WaitObserved(ctx context.Context) error {
	if c.observer == nil {
		return nil
	}
	return c.observer.Wait(ctx)
}
