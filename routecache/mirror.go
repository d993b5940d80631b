package routecache

import "context"

// Mirror shows the cached routes elsewhere: what it shows is a part of what Get
// returns, at any moment, and a fence waits for the readers of it.
//
// Publish, Retract and Used are called under the lock of the route's shard; they must
// neither block nor call the cache.
type Mirror interface {
	// Publish may show a route that is cached. It calls the route's SetSlot if it does.
	Publish(*Route)
	// Retract hides a route for good, before it leaves the cache. It sets Slot to 0.
	Retract(*Route)
	// Used reports whether the route was used where it is shown since the last call.
	Used(*Route) bool
	// Wait returns nil when no reader is about to use a route that was removed before the
	// call, or the context's error.
	Wait(context.Context) error
}

// SetMirror sets the cache's mirror. Call it before anything is put.
func (c *Cache) SetMirror(o Mirror) {
	c.mirror = o
	for i := range c.shards {
		c.shards[i].mirror = o
	}
}

// Retract hides the sandbox's route from the mirror. The route stays cached, and
// the next Get shows it again if the mirror takes it.
func (c *Cache) Retract(id string) {
	if c.mirror == nil {
		return
	}
	s, _ := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.lru.Peek(id); ok {
		c.mirror.Retract(r)
	}
}

// WaitMirror returns nil when no reader is about to use a route that the mirror has
// hidden before the call, or the context's error.
func (c *Cache) WaitMirror(ctx context.Context) error {
	if c.mirror == nil {
		return nil
	}
	return c.mirror.Wait(ctx)
}
