package node

import (
	"fmt"
	"net/netip"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// addresses hands out the pod addresses of a subnet. The first usable one is
// the bridge's. Safe for concurrent use.
type addresses struct {
	lifo bool

	mu    sync.Mutex // guards all below
	next  netip.Addr // never handed out yet
	last  netip.Addr
	free  []netip.Addr             // released, oldest first
	owner map[netip.Addr]types.UID // handed out or kept for a pod
}

func newAddresses(subnet netip.Prefix, lifo bool) *addresses {
	subnet = subnet.Masked()
	return &addresses{
		lifo: lifo, next: gatewayOf(subnet).Next(), last: lastOf(subnet),
		owner: map[netip.Addr]types.UID{},
	}
}

// gatewayOf is the machine's own address in the subnet.
func gatewayOf(subnet netip.Prefix) netip.Addr { return subnet.Masked().Addr().Next() }

// lastOf is the last address before the broadcast address.
func lastOf(subnet netip.Prefix) netip.Addr {
	raw := subnet.Masked().Addr().As4()
	for bit := subnet.Bits(); bit < 32; bit++ {
		raw[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(raw).Prev()
}

// keep reserves an address that a pod already shows in its status, before any
// is handed out. It returns false if that is not possible.
func (a *addresses) keep(uid types.UID, addr netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !addr.IsValid() || addr.Less(a.next) || a.last.Less(addr) || a.owner[addr] != "" {
		return false
	}
	a.owner[addr] = uid
	return true
}

// take returns the address kept for uid, or another one. While fresh ones are
// left (and without lifo) no released one is used.
func (a *addresses) take(uid types.UID) (netip.Addr, error) {
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

// giveBack frees what uid has, which may be nothing.
func (a *addresses) giveBack(uid types.UID) {
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
