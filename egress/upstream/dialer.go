// Package upstream connects the egress process to a host of the internet for a sandbox:
// fill in a [Dialer] and call Dial. It resolves the name itself, judges the address that it
// connects to, and connects to no other: a name whose answer changes, or that leads into
// the cluster, opens nothing.
//
// Whether the sandbox may reach the name is package egress/names' to say.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/sandlane/sandlane/egress"
)

// ErrClosed is a name without an address that a sandbox may connect to.
var ErrClosed = errors.New("its addresses are closed to sandboxes")

// special are the IPv4 blocks that are nobody's on the internet, beside those that netip
// knows by name.
var special = egress.Closed{
	netip.MustParsePrefix("0.0.0.0/8"),     // this network
	netip.MustParsePrefix("100.64.0.0/10"), // carriers' own
	netip.MustParsePrefix("192.0.0.0/24"),  // protocols
	netip.MustParsePrefix("198.18.0.0/15"), // benchmarks
	netip.MustParsePrefix("240.0.0.0/4"),   // reserved, and broadcast
}

// Dialer connects to hosts. It is safe for concurrent use.
type Dialer struct {
	// Resolve returns a name's addresses.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Closed are the ranges that no sandbox may reach: egress.ClosedRanges, with those of
	// the cluster and of this process.
	Closed egress.Closed
	// Own are hosts that the operator opens within closed ranges, each with its blocks.
	Own map[string][]netip.Prefix
	// Proxy is an HTTP proxy that is asked to connect to hosts but those of Own, at the address
	// that was judged. Zero: none is.
	Proxy netip.AddrPort

	// interfaces are this machine's addresses; nil is net.InterfaceAddrs.
	interfaces func() ([]net.Addr, error)
}

// Dial connects to a host's first address that is not closed, that allowed, which is the
// sandbox's policy, lets pass, and that answers. ErrClosed: there is none that may be tried.
func (d *Dialer) Dial(ctx context.Context, host string, port uint16, allowed func(netip.Addr) bool) (net.Conn, error) {
	addrs, err := d.Resolve(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", host, err)
	}
	failed := ErrClosed
	for _, addr := range addrs {
		addr = addr.Unmap()
		if !d.opens(host, addr) || !allowed(addr) {
			continue
		}
		c, err := d.connect(ctx, host, netip.AddrPortFrom(addr, port))
		if err == nil {
			return c, nil
		}
		failed = err
	}
	return nil, fmt.Errorf("connect to %s: %w", host, failed)
}

// Addrs returns a host's addresses that sandboxes may reach; none is no error.
func (d *Dialer) Addrs(ctx context.Context, host string) ([]netip.Addr, error) {
	addrs, err := d.Resolve(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", host, err)
	}
	var open []netip.Addr
	for _, addr := range addrs {
		if addr = addr.Unmap(); d.opens(host, addr) {
			open = append(open, addr)
		}
	}
	return open, nil
}

// opens reports whether sandboxes may reach the host at the address. IPv6 is closed.
func (d *Dialer) opens(host string, addr netip.Addr) bool {
	if !addr.Is4() {
		return false
	}
	for _, block := range d.Own[host] {
		if block.Contains(addr) {
			return true
		}
	}
	one := netip.PrefixFrom(addr, addr.BitLen())
	return addr.IsGlobalUnicast() && !addr.IsPrivate() && !special.Covers(one) && !d.Closed.Covers(one) && !d.here(addr)
}

// here reports whether the address is one of this machine's, whose servers may be for itself
// alone. An address may be added while it runs, so they are read anew.
func (d *Dialer) here(addr netip.Addr) bool {
	interfaces := d.interfaces
	if interfaces == nil {
		interfaces = net.InterfaceAddrs
	}
	all, err := interfaces()
	if err != nil {
		return true
	}
	for _, a := range all {
		if block, ok := a.(*net.IPNet); ok && block.IP.Equal(addr.AsSlice()) {
			return true
		}
	}
	return false
}
