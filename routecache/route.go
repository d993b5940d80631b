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
	// Namespace is the pod's; a handle, since few are shared by many routes.
	Namespace unique.Handle[string]
	// ClaimID and PodUID identify the binding that the route stands for.
	ClaimID string
	PodUID  string
	// Addr is the fenced pod IP.
	Addr netip.Addr
	// PodRV is the resourceVersion of the pod object the route came from.
	PodRV uint64
	// PrivateUID is nil if anyone may ask for any port of the sandbox. Else every port
	// but sandboxd's own asks for the traffic token of the sandbox with this UID. It is
	// a pointer to keep a public sandbox's entry within its budget of memory.
	PrivateUID *types.UID
	// place is where the route lies in its shard's addressList. It changes while the
	// route is cached, and is the shard's alone.
	place uint32
	// Stamp notes the sandbox's use. Never nil in the cache.
	Stamp *Stamp
}

// Same reports whether both routes stand for the same claim on the same pod.
func (r *Route) Same(o *Route) bool {
	return r == o || r.SandboxID == o.SandboxID && r.ClaimID == o.ClaimID && r.PodUID == o.PodUID
}

// Stamp is the last time at which a sandbox was seen in use, and whether its
// requests are held for an idle release. The zero value has never been touched. Safe for concurrent use.
type Stamp struct {
	nanos atomic.Int64
	held  atomic.Bool
}

// Touch notes use at now, in Unix nanoseconds. The latest time wins.
func (s *Stamp) Touch(now int64) {
	for {
		old := s.nanos.Load()
		if old >= now || s.nanos.CompareAndSwap(old, now) {
			return
		}
	}
}

// Load returns the last touch in Unix nanoseconds, 0 if there was none.
func (s *Stamp) Load() int64 { return s.nanos.Load() }

// Hold makes handlers wait, or lets them go on. Touch comes before the look at
// Held, and a hold before the look at the last touch: of a handler and whoever
// holds at least one sees the other.
func (s *Stamp) Hold(held bool) { s.held.Store(held) }

// Held reports whether a handler that has touched the stamp must not answer now.
func (s *Stamp) Held() bool { return s.held.Load() }

// Fence says that whatever a pod object older than RV says about Addr is over.
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
