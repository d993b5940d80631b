package node

import (
	"context"
	"net"
	"net/netip"
)

func (n plainNetwork) Addr() netip.Addr { return n.addr }

func (n plainNetwork) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// SetReachable does nothing: loopback addresses can always be reached.
func (plainNetwork) SetReachable(bool) error { return nil }

func (plainNetwork) Close() error { return nil }
