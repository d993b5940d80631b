package routecache

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
)

const (
	// DefaultSize is how many routes a cache holds when New is given no size.
	DefaultSize = 100_000

	shardCount  = 16
	shardMask   = shardCount - 1
	stripeShift = 4 // the ID's hash bits above those that pick the shard
)

// Cache is the route cache. All methods are safe for concurrent use.
//
// A route is absent, then cached (Put), then absent again: evicted, dropped,
// invalidated or fenced. A shard's mutex guards its LRU, its list of
// addresses and its token generations; all three change together under it.
//
// An address is open, refused (a fence came, the pod watch has not passed its
// resourceVersion), or lifted (the watch has passed it; only resolves that
// began before that moment are still refused). Fence refuses, PodsSeen lifts.
// Rewind refuses all addresses, and the next PodsSeen opens them.
// The lock order is shard, then refusals.
type Cache struct {
	seed     maphash.Seed
	shards   [shardCount]shard
	refusals refusals
	flights  flights
	metrics  *metrics
	mirror   Mirror // nil for none

	refused atomic.Uint64 // Puts that were turned away
}

// New returns an empty cache for about size routes (it is split over 16 shards,
// each of which evicts by itself). A size of 0 or less means DefaultSize.
func New(size int) *Cache {
	if size <= 0 {
		size = DefaultSize
	}
	c := &Cache{seed: maphash.MakeSeed(), metrics: newMetrics()}
	for i := range c.shards {
		c.shards[i].init((size + shardMask) / shardCount)
	}
	c.refusals.init()
	c.flights.init()
	return c
}

func (c *Cache) shard(id string) (*shard, uint64) {
	h := maphash.String(c.seed, id)
	return &c.shards[h&shardMask], h >> stripeShift
}

// Get returns the sandbox's route, or nil. It does not allocate. To answer from
// the route the caller must be in flight (see Enter).
func (c *Cache) Get(id string) *Route {
	s, _ := c.shard(id)
	s.mu.Lock()
	r, _ := s.lru.Get(id)
	if s.mirror != nil && r != nil && r.Slot() == 0 {
		s.mirror.Publish(r)
	}
	s.mu.Unlock()
	return r
}

// Begin starts a resolve. It must come before the first read.
func (c *Cache) Begin(id string) Token {
	s, stripe := c.shard(id)
	lifts := c.refusals.begin()
	return Token{generation: s.generation(stripe), lifts: lifts}
}

// Put caches r, resolved since Begin returned t. It returns false, and caches
// nothing, if the ID was invalidated since, or a fence refuses the route: then
// what was read must not be used, resolve again. A cached route of a newer pod
// object stays, and Put returns true.
//
// Put panics if r has no address or no use. r belongs to this cache from then on:
// it must not be put into another.
func (c *Cache) Put(t Token, r *Route) bool {
	if r.Use == nil || !r.Addr.IsValid() {
		panic("routecache: Put of a route without use or address")
	}
	s, stripe := c.shard(r.SandboxID)
	ok := s.put(stripe, t, r, hashAddr(c.seed, r.Addr), &c.refusals)
	if !ok {
		c.refused.Add(1)
	}
	return ok
}

// Admits reports whether Put would take r now. Code that writes to r's address
// before r is cached asks it first, and gives up within the time for which an
// address rests after its fence: a fence that comes after the answer does not
// wait for that write.
func (c *Cache) Admits(t Token, r *Route) bool {
	s, stripe := c.shard(r.SandboxID)
	return s.admits(stripe, t, r, &c.refusals)
}

// Invalidate drops the sandbox's route, if it is cached, and makes every Put of the
// ID fail whose resolve has begun: an end or a changed binding was seen or written.
func (c *Cache) Invalidate(id string) {
	s, stripe := c.shard(id)
	s.invalidate(stripe, id)
}

// Drop removes r, or a route of the same claim and pod, if it is cached.
func (c *Cache) Drop(r *Route) {
	s, _ := c.shard(r.SandboxID)
	s.drop(r)
}

// DropAll removes every route and invalidates every open Token. Refusals stay.
func (c *Cache) DropAll() {
	for i := range c.shards {
		c.shards[i].dropAll()
	}
}

// Len returns the number of cached routes.
func (c *Cache) Len() int {
	n := 0
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		n += s.lru.Len()
		s.mu.Unlock()
	}
	return n
}

// Range calls f for each cached route until f returns false. It is no snapshot:
// routes put or dropped meanwhile may or may not be seen. No lock is held while
// f runs. The routes must not be answered from.
func (c *Cache) Range(f func(*Route) bool) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		routes := s.addresses.snapshot()
		s.mu.Unlock()
		for _, r := range routes {
			if !f(r) {
				return
			}
		}
	}
}

// RangeClaims calls f for the claim of each cached route until f returns false. Routes can be
// newer than what a watch has shown.
func (c *Cache) RangeClaims(f func(addr netip.Addr, namespace, id, claim string) bool) {
	c.Range(func(r *Route) bool { return f(r.Addr, r.InPool().Namespace, r.SandboxID, r.ClaimID) })
}

// Evictions returns how many routes were evicted for lack of room.
func (c *Cache) Evictions() uint64 {
	var n uint64
	for i := range c.shards {
		n += c.shards[i].evictions.Load()
	}
	return n
}
