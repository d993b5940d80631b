package routes

import (
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/sandlane/sandlane/bench/suite"
	"github.com/sandlane/sandlane/routecache"
)

// store is a cache that is measured. All methods may be called at once.
type store interface {
	get(id string) bool
	put(r *routecache.Route)
}

// sandlane is the route cache as a request uses it.
type sandlane struct{ *routecache.Cache }

func (s sandlane) get(id string) bool {
	flight := s.Enter()
	defer flight.Leave()
	return s.Get(id) != nil
}

func (s sandlane) put(r *routecache.Route) { s.Put(s.Begin(r.SandboxID), r) }

// golangLRU is hashicorp's, one mutex.
type golangLRU struct {
	*lru.Cache[string, *routecache.Route]
}

func (s golangLRU) get(id string) bool {
	_, found := s.Get(id)
	return found
}

func (s golangLRU) put(r *routecache.Route) { s.Add(r.SandboxID, r) }

// mapMutex is the simplest store. mu guards m.
type mapMutex struct {
	mu sync.Mutex
	m  map[string]*routecache.Route
}

func (s *mapMutex) get(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m[id] != nil
}

func (s *mapMutex) put(r *routecache.Route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m[r.SandboxID] = r
}

// kinds returns the kinds of stores, whose make makes one for n routes.
func kinds() []kind {
	return []kind{
		{"sandlane", func(size int) store { return sandlane{routecache.New(size)} }},
		{"golang-lru", func(size int) store {
			c, err := lru.New[string, *routecache.Route](size)
			if err != nil {
				panic(err) // the size is positive
			}
			return golangLRU{c}
		}},
		{"map-mutex", func(int) store { return &mapMutex{m: map[string]*routecache.Route{}} }},
	}
}

type kind struct {
	name string
	make func(size int) store
}

// use is shared by all routes, since making one is a cost of the activity registry.
var use routecache.ClaimUse

var pool = routecache.PoolOf(suite.Namespace, "echo")

// route returns a route to the i-th address. Its other texts are the same for all, since a
// route only points to those of the index.
func route(id string, i int) *routecache.Route {
	return &routecache.Route{
		SandboxID: id, Pool: pool, ClaimID: "00000000-0000-4000-8000-000000000001",
		PodUID: "00000000-0000-4000-8000-000000000002", Addr: suite.Address(uint32(i)), PodRV: 1, Use: &use,
	}
}
