package relay

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// idleScan and busyScan are the times between scans without and with relays.
	idleScan = 500 * time.Millisecond
	busyScan = 200 * time.Millisecond
)

// Relay is one relay. Set its fields before Run.
type Relay struct {
	// Addresses are the sandbox's own addresses, on which the relay listens.
	Addresses []netip.Addr
	// Except is sandboxd's port.
	Except uint16

	open    map[netip.AddrPort]*entrance // by the address on which it listens; only Run's goroutine uses it
	lost    chan struct{}                // capacity 1: a connection found no server
	serving sync.WaitGroup
}

// Run relays until the context ends. When it returns, none of its ports and connections is
// open. Call it once.
func (r *Relay) Run(ctx context.Context) {
	r.open, r.lost = map[netip.AddrPort]*entrance{}, make(chan struct{}, 1)
	defer r.serving.Wait()
	defer r.follow(ctx, nil)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		case <-r.lost:
		}
		if listeners, err := scan(); err == nil {
			r.follow(ctx, wanted(listeners, r.Addresses, r.Except, r.mine))
		}
		if len(r.open) > 0 {
			pause.Reset(busyScan)
		} else {
			pause.Reset(idleScan)
		}
	}
}

// mine reports whether a listener belongs to the relay.
func (r *Relay) mine(at netip.AddrPort) bool { return r.open[at] != nil }

// follow closes the listeners that are not in want any more, and opens the missing ones.
func (r *Relay) follow(ctx context.Context, want map[netip.AddrPort][]netip.AddrPort) {
	for at, e := range r.open {
		if want[at] == nil {
			_ = e.listener.Close()
			delete(r.open, at)
		}
	}
	for at, servers := range want {
		if e := r.open[at]; e != nil {
			e.servers.Store(&servers)
			continue
		}
		var plain net.ListenConfig
		plain.SetMultipathTCP(false) // the kernel cannot splice with it
		listener, err := plain.Listen(ctx, "tcp", at.String())
		if err != nil {
			continue // another program listens there by now, or sandboxd may not use the port
		}
		e := &entrance{listener: listener.(*net.TCPListener), lost: r.lost, serving: &r.serving}
		e.servers.Store(&servers)
		r.open[at] = e
		r.serving.Go(func() { e.serve(ctx) })
	}
}

var loopback4, loopback6 = netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()

// wanted returns the addresses on which to listen, and for each the servers, those of the
// same family first.
func wanted(listeners []netip.AddrPort, own []netip.Addr, except uint16, mine func(netip.AddrPort) bool) map[netip.AddrPort][]netip.AddrPort {
	servers := map[uint16][]netip.AddrPort{}
	everywhere := map[uint16]bool{except: true}
	taken := map[netip.AddrPort]bool{}
	for _, l := range listeners {
		switch addr := l.Addr(); {
		case addr.IsUnspecified():
			everywhere[l.Port()] = true
		case addr == loopback4 || addr == loopback6:
			servers[l.Port()] = append(servers[l.Port()], l)
		case !mine(l):
			taken[l] = true
		}
	}
	want := map[netip.AddrPort][]netip.AddrPort{}
	for port, all := range servers {
		if everywhere[port] {
			continue
		}
		for _, addr := range own {
			at := netip.AddrPortFrom(addr, port)
			if taken[at] {
				continue
			}
			for _, sameFamily := range []bool{true, false} {
				for _, server := range all {
					if (server.Addr().Is4() == addr.Is4()) == sameFamily {
						want[at] = append(want[at], server)
					}
				}
			}
		}
	}
	return want
}

// Own returns the addresses at which other machines reach this one.
func Own() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var own []netip.Addr
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().Unmap().IsGlobalUnicast() {
			own = append(own, prefix.Addr().Unmap())
		}
	}
	return own, nil
}
