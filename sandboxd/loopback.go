package sandboxd

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/sandlane/sandlane/sandboxd/relay"
)

// startRelay starts the relay of servers on loopback, if the options say so. stop ends the
// relay and cuts its connections.
func (s *Server) startRelay(ctx context.Context, listening net.Addr) (stop func()) {
	if !s.options.Relay {
		return func() {}
	}
	own, addresses, err := relayed(listening)
	if err != nil {
		_, _ = fmt.Fprintln(s.options.Log, "sandboxd: servers on loopback are not relayed:", err)
		return func() {}
	}
	r := &relay.Relay{Addresses: addresses, Except: own}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// relayed returns sandboxd's own port, and the addresses at which clients reach it.
func relayed(listening net.Addr) (port uint16, addresses []netip.Addr, err error) {
	at, err := netip.ParseAddrPort(listening.String())
	if err != nil {
		return 0, nil, fmt.Errorf("the address of sandboxd: %w", err)
	}
	if addresses, err = relay.Own(); err != nil {
		return 0, nil, fmt.Errorf("the addresses of the sandbox: %w", err)
	}
	if own := at.Addr().Unmap(); !own.IsUnspecified() {
		addresses = slices.DeleteFunc(addresses, func(a netip.Addr) bool { return a != own })
	}
	if len(addresses) == 0 {
		return 0, nil, fmt.Errorf("the sandbox has no address by which others reach %s", at)
	}
	return at.Port(), addresses, nil
}
