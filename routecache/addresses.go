package routecache

import (
	"hash/maphash"
	"net/netip"
	"slices"
)

// addressList is the routes of a shard in no order, beside the hashes of their
// addresses. A fence reads all hashes, in a few microseconds for a shard of the
// default size, and looks only at the routes whose hash matches; a map would cost
// four times the memory. Each route has its index in the list (Route.index), so that
// its removal needs no search. Guarded by the shard's mutex.
type addressList struct {
	hashes []uint32
	routes []*Route
}

func (l *addressList) add(hash uint32, r *Route) {
	r.index = uint32(len(l.routes))
	l.hashes = append(l.hashes, hash)
	l.routes = append(l.routes, r)
}

// remove takes r out; the last one moves to its place.
func (l *addressList) remove(r *Route) {
	i, last := r.index, len(l.routes)-1
	if int(i) > last || l.routes[i] != r {
		panic("routecache: a route of this cache was put into another")
	}
	l.hashes[i], l.routes[i] = l.hashes[last], l.routes[last]
	l.routes[i].index = i
	l.routes[last] = nil
	l.hashes, l.routes = l.hashes[:last], l.routes[:last]
}

// older returns the routes that the fences cover.
func (l *addressList) older(f *fences) []*Route {
	var covered []*Route
	for i, h := range l.hashes {
		if f.maybe(h) && f.covers(l.routes[i]) {
			covered = append(covered, l.routes[i])
		}
	}
	return covered
}

// snapshot returns a copy of the routes.
func (l *addressList) snapshot() []*Route { return slices.Clone(l.routes) }

// fences are a batch, prepared for looking through the shards.
type fences struct {
	byAddr map[netip.Addr]uint64
	// bits has the bit of each address's hash set.
	bits [1 << 16 / 64]uint64
}

func newFences(batch []Fence, seed maphash.Seed) *fences {
	f := &fences{byAddr: make(map[netip.Addr]uint64, len(batch))}
	for _, x := range batch {
		addr := x.Addr.Unmap()
		f.byAddr[addr] = max(f.byAddr[addr], x.RV)
		h := hashAddr(seed, addr) & 0xffff
		f.bits[h/64] |= 1 << (h % 64)
	}
	return f
}

// maybe reports whether an address of this hash may be fenced.
func (f *fences) maybe(hash uint32) bool {
	h := hash & 0xffff
	return f.bits[h/64]&(1<<(h%64)) != 0
}

// covers reports whether the route comes from an older pod object than a fence.
func (f *fences) covers(r *Route) bool {
	rv, ok := f.byAddr[r.Addr.Unmap()]
	return ok && r.PodRV < rv
}

// hashAddr hashes an address; IPv4 in IPv6 form hashes like IPv4.
func hashAddr(seed maphash.Seed, a netip.Addr) uint32 {
	b := a.As16()
	return uint32(maphash.Bytes(seed, b[:]))
}
