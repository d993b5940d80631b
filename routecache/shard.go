package routecache

import (
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// stripesPerShard is how many generations a shard has: an end makes the open
// resolves of its stripe start over, those of one ID in 1024.
const stripesPerShard = 64

// shard is one part of the cache. mu guards lru, addresses and generations, and is held
// around the mirror's calls; lru and addresses hold the same routes.
type shard struct {
	mu        sync.Mutex
	lru       *simplelru.LRU[string, *Route]
	size      int
	mirror    Mirror // nil for none; set before the first put
	addresses addressList
	// generations start at 1, so that the zero Token fits none.
	generations [stripesPerShard]uint64

	evictions atomic.Uint64
	_         [64]byte // keeps the next shard off this one's cache lines
}

// init sizes the shard.
func (s *shard) init(size int) {
	lru, err := simplelru.NewLRU(size, func(_ string, r *Route) {
		s.addresses.remove(r)
		if s.mirror != nil {
			s.mirror.Retract(r)
		}
	})
	if err != nil {
		panic("routecache: " + err.Error()) // the size is positive
	}
	s.lru, s.size = lru, size
	for i := range s.generations {
		s.generations[i] = 1
	}
}

func (s *shard) generation(stripe uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generations[stripe%stripesPerShard]
}

// put caches r unless its token or a refusal forbids it. hash is that of its
// address. The refusals are looked at under mu: see "Why a fence holds" at
// Cache.Fence.
func (s *shard) put(stripe uint64, t Token, r *Route, hash uint32, refusals *refusals) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.valid(stripe, t, r, refusals) {
		return false
	}
	if old, ok := s.lru.Peek(r.SandboxID); ok {
		if old.PodRV > r.PodRV {
			return true
		}
		s.lru.Remove(r.SandboxID)
	}
	s.spare()
	s.addresses.add(hash, r)
	if s.lru.Add(r.SandboxID, r) {
		s.evictions.Add(1)
	}
	if s.mirror != nil {
		s.mirror.Publish(r)
	}
	return true
}

// maxSpared bounds how many routes a Put into a full shard looks at.
const maxSpared = 8

// spare gives the routes that would be evicted next a second chance if they were used
// where the mirror shows them, which the LRU does not see. Under mu.
func (s *shard) spare() {
	if s.mirror == nil || s.lru.Len() < s.size {
		return
	}
	for range maxSpared {
		id, r, ok := s.lru.GetOldest()
		if !ok || !s.mirror.Used(r) {
			return
		}
		s.lru.Get(id)
	}
}

// valid reports whether neither the token nor a refusal forbids r. Under mu.
func (s *shard) valid(stripe uint64, t Token, r *Route, refusals *refusals) bool {
	return s.generations[stripe%stripesPerShard] == t.generation && !refusals.refuse(t, r)
}

func (s *shard) admits(stripe uint64, t Token, r *Route, refusals *refusals) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.valid(stripe, t, r, refusals)
}

func (s *shard) invalidate(stripe uint64, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generations[stripe%stripesPerShard]++
	s.lru.Remove(id)
}

func (s *shard) drop(r *Route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cached, ok := s.lru.Peek(r.SandboxID); ok && cached.Same(r) {
		s.lru.Remove(r.SandboxID)
	}
}

func (s *shard) dropAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.generations {
		s.generations[i]++
	}
	s.lru.Purge()
}

// dropOlder removes the routes that the fences cover. The lock is held
// for one pass over the hashes of the shard's addresses.
func (s *shard) dropOlder(f *fences) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.addresses.older(f) {
		s.lru.Remove(r.SandboxID)
	}
}
