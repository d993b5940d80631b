package gateway

import (
	"net/netip"

	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/routecache"
)

// claims is every claim this gateway may have routed to: those of the index, and
// those of cached routes, which can be newer than what the watches have shown.
type claims struct {
	index *index.Index
	cache *routecache.Cache
}

// RangeClaims implements inuse.Claims. A claim may come twice.
func (c claims) RangeClaims(f func(addr netip.Addr, namespace, id, claim string) bool) {
	more := true
	c.index.RangeClaims(func(addr netip.Addr, namespace, id, claim string) bool {
		more = f(addr, namespace, id, claim)
		return more
	})
	if more {
		c.cache.Range(func(r *routecache.Route) bool { return f(r.Addr, r.InPool().Namespace, r.SandboxID, r.ClaimID) })
	}
}
