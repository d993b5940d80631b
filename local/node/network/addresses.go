package network

import (
	"fmt"
	"net/netip"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Addresses hands out the pod addresses of a subnet. The first usable one is
// the bridge's. Safe for concurrent use.
type Addresses struct {
	lifo bool

	mu    sync.Mutex // guards all below
	next  netip.Addr // never handed out yet
	last  netip.Addr
	free  []netip.Addr             // released, oldest first
	owner map[netip.Addr]types.UID // handed out or kept for a pod
}

// NewAddresses returns those of a subnet, of which none is handed out; lifo hands out first what was
// released last.
func NewAddresses(subnet netip.Prefix, lifo bool) *Addresses {
	subnet = subnet.Masked()
	return &Addresses{
		lifo: lifo, next: GatewayOf(subnet).Next(), last: lastOf(subnet),
		owner: map[netip.Addr]types.UID{},
	}
}

// GatewayOf is the machine's own address in the subnet.
func GatewayOf(subnet netip.Prefix) netip.Addr { return subnet.Masked().Addr().Next() }

// lastOf is the last address before the broadcast address.
func lastOf(subnet netip.Prefix) netip.Addr {
	raw := subnet.Masked().Addr().As4()
	for bit := subnet.Bits(); bit < 32; bit++ {
		raw[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(raw).Prev()
}

// Keep reserves an address that a pod already shows in its status, before any
// is handed out. It returns false if that is not possible.
func (a *Addresses) Keep(uid types.UID, addr netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !addr.IsValid() || addr.Less(a.next) || a.last.Less(addr) || a.owner[addr] != "" {
		return false
	}
	a.owner[addr] = uid
	return true
}

// Take returns the address kept for uid, or another one. While fresh ones are
// left (and without lifo) no released one is used.
func (a *Addresses) Take(uid types.UID) (netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for addr, owner := range a.owner {
		if owner == uid {
			return addr, nil
		}
	}
	if a.lifo && len(a.free) > 0 {
		addr := a.free[len(a.free)-1]
		a.free = a.free[:len(a.free)-1]
		a.owner[addr] = uid
		return addr, nil
	}
	for ; !a.last.Less(a.next); a.next = a.next.Next() {
		if a.owner[a.next] == "" {
			addr := a.next
			a.next = a.next.Next()
			a.owner[addr] = uid
			return addr, nil
		}
	}
	if len(a.free) == 0 {
		return netip.Addr{}, fmt.Errorf("no free pod address: %d are in use", len(a.owner))
	}
	addr := a.free[0]
	a.free = a.free[1:]
	a.owner[addr] = uid
	return addr, nil
}

// GiveBack frees what uid has, which may be nothing.
func (a *Addresses) GiveBack(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for addr, owner := range a.owner {
		if owner == uid {
			delete(a.owner, addr)
			if addr.Less(a.next) {
				a.free = append(a.free, addr)
			}
		}
	}
}
