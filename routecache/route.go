package routecache

import (
	"net/netip"
	"sync/atomic"
	"unique"

	"k8s.io/apimachinery/pkg/types"
)

// Route says where a sandbox lives. It is immutable once Put, and not to be copied
// then.
type Route struct {
	// SandboxID is the key.
	SandboxID string
	// Pool is the sandbox's pool, in the pod's namespace (see PoolOf).
	Pool unique.Handle[Pool]
	// ClaimID and PodUID identify the binding that the route stands for.
	ClaimID string
	PodUID  string
	// Addr is the pod IP at which the claim may be reached (v1alpha1.RoutableAddress).
	Addr netip.Addr
	// PodRV is the resourceVersion of the pod object the route came from.
	PodRV uint64
	// Private asks for the traffic token on every port that is not Guarded.
	Private bool
	// Guarded: sandboxd serves its port and asks for the sandbox's token there.
	Guarded bool
	// index is that of the route in its shard's addressList. It changes while the
	// route is cached, and is the shard's alone.
	index uint32
	// TokenUID is the UID of a sandbox whose traffic token a request may have to
	// show: a private one, or one that was made by name. Nil for all others. It is a
	// pointer to keep an entry within its budget of memory.
	TokenUID *types.UID
	// Use notes when the claim was last in use. Never nil in the cache.
	Use *ClaimUse
}

// Pool names a pool.
type Pool struct{ Namespace, Name string }

// PoolOf is a pool's name as routes have it: half the size of one string, with one
// copy of the text for all.
func PoolOf(namespace, name string) unique.Handle[Pool] { return unique.Make(Pool{namespace, name}) }

// InPool returns the pool of the route's sandbox; the zero Pool if there is none.
func (r *Route) InPool() Pool {
	if r.Pool == (unique.Handle[Pool]{}) {
		return Pool{}
	}
	return r.Pool.Value()
}

// Slot returns the number under which the cache's mirror shows the route; 0 while it does
// not. Only the cache and its mirror call it, under the lock of the route's shard.
func (r *Route) Slot() uint32 { return r.Use.slot }

// SetSlot keeps that number. Only the mirror calls it, from its methods.
func (r *Route) SetSlot(n uint32) { r.Use.slot = n }

// Same reports whether both routes stand for the same claim on the same pod.
func (r *Route) Same(o *Route) bool {
	return r == o || r.SandboxID == o.SandboxID && r.ClaimID == o.ClaimID && r.PodUID == o.PodUID
}

// ClaimUse is the last time at which a sandbox was seen in use, whether its requests are
// held for an idle release, and whether it has as many open as it may. The zero value has
// never been touched. Safe for concurrent use.
type ClaimUse struct {
	nanos atomic.Int64
	flags atomic.Uint32
	// slot is what Route.Slot returns. It can be here, where there is room for it,
	// because a claim has at most one cached route. Guarded by that route's shard.
	slot uint32
}

// Flags of a ClaimUse.
const (
	useHolding = 1 << iota
	useFull
)

func (s *ClaimUse) set(flag uint32, on bool) {
	if on {
		s.flags.Or(flag)
	} else {
		s.flags.And(^flag)
	}
}

// Touch notes use at now, in Unix nanoseconds. The latest time wins.
func (s *ClaimUse) Touch(now int64) {
	for {
		old := s.nanos.Load()
		if old >= now || s.nanos.CompareAndSwap(old, now) {
			return
		}
	}
}

// Load returns the last touch in Unix nanoseconds, 0 if there was none.
func (s *ClaimUse) Load() int64 { return s.nanos.Load() }

// SetHolding makes handlers wait (true), or lets them go on (false). A handler calls Touch
// before Holding, and a release calls SetHolding before it loads the last touch: so at least
// one of the two sees the other.
func (s *ClaimUse) SetHolding(holding bool) { s.set(useHolding, holding) }

// Holding reports whether a handler that has touched the use must not answer now.
func (s *ClaimUse) Holding() bool { return s.flags.Load()&useHolding != 0 }

// SetFull says whether the sandbox has as many requests open as it may.
func (s *ClaimUse) SetFull(full bool) { s.set(useFull, full) }

// Full reports whether further requests are to be refused.
func (s *ClaimUse) Full() bool { return s.flags.Load()&useFull != 0 }

// Fence forbids routes to Addr that come from a pod object older than RV, because the
// claim that such an object shows has ended.
type Fence struct {
	Addr netip.Addr
	RV   uint64
}

// Token ties a Put to what was known when its resolve began. The zero value is
// refused by every Put.
type Token struct {
	generation uint64 // of the ID's stripe
	lifts      uint64 // lifts of refusals seen so far
}
