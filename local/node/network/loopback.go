package network

import (
	"context"
	"net"
	"net/netip"
)

// Loopback is an address of the loopback interface.
type Loopback struct{ Address netip.Addr }

// Addr is the address.
func (n Loopback) Addr() netip.Addr { return n.Address }

// Dial connects from the machine.
func (n Loopback) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// SetReachable does nothing: loopback addresses can always be reached.
func (Loopback) SetReachable(bool) error { return nil }

// Close does nothing.
func (Loopback) Close() error { return nil }
