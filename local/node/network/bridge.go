package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Pod is the network of one pod. Safe for concurrent use.
type Pod interface {
	// Addr is the pod's address.
	Addr() netip.Addr
	// Dial connects from inside the pod.
	Dial(ctx context.Context, network, address string) (net.Conn, error)
	// SetReachable lets the machine reach the pod, or not.
	SetReachable(bool) error
	// Close takes the network away, and with it the machine's connections to it;
	// call it when the processes are dead.
	Close() error
}

// Bridge is the one link that all pods of a full node hang on.
type Bridge struct {
	name   string
	hash   string
	subnet netip.Prefix
	index  int
	// leaveOutgoing opens networks without the rules of closeOutgoing, which this
	// kernel does not have.
	leaveOutgoing bool
}

// names outside the state folder; an interface name has at most 15 bytes.
func bridgeName(hash string) string { return "sl" + hash + "br" }

// VethName is the name of the link of the machine that leads to a pod.
func VethName(hash string, addr netip.Addr) string {
	raw := addr.As4()
	return fmt.Sprintf("sl%sv%x", hash, uint16(raw[2])<<8|uint16(raw[3]))
}

// podMAC depends on the address alone, so that the neighbour tables stay right
// when an address serves another pod.
func podMAC(addr netip.Addr) net.HardwareAddr {
	raw := addr.As4()
	return net.HardwareAddr{0x02, 0x5a, raw[0], raw[1], raw[2], raw[3]}
}

// OpenBridge makes the bridge of the node with this hash.
func OpenBridge(hash string, subnet netip.Prefix) (*Bridge, error) {
	b := &Bridge{name: bridgeName(hash), hash: hash, subnet: subnet.Masked()}
	gateway := GatewayOf(subnet)
	snooping := false
	link := &netlink.Bridge{
		// A bridge without an address of its own takes the lowest of its ports,
		// which pods would have in their tables when it changes.
		LinkAttrs:         netlink.LinkAttrs{Name: b.name, HardwareAddr: podMAC(gateway), TxQLen: -1},
		MulticastSnooping: &snooping,
	}
	if err := netlink.LinkAdd(link); err != nil {
		return nil, fmt.Errorf("add bridge %s: %w", b.name, err)
	}
	b.index = link.Attrs().Index
	for key, value := range map[string]string{
		"ipv4/conf/" + b.name + "/forwarding":   "0", // never from pod to pod through the machine
		"ipv4/conf/" + b.name + "/rp_filter":    "0", // the last words of a pod just made unreachable
		"ipv6/conf/" + b.name + "/disable_ipv6": "1",
	} {
		_ = os.WriteFile("/proc/sys/net/"+key, []byte(value), 0)
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: gateway.AsSlice(), Mask: net.CIDRMask(subnet.Bits(), 32)}}
	if err := netlink.AddrAdd(link, addr); err != nil {
		return nil, errors.Join(fmt.Errorf("give the bridge its address: %w", err), netlink.LinkDel(link))
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return nil, errors.Join(fmt.Errorf("bring the bridge up: %w", err), netlink.LinkDel(link))
	}
	return b, nil
}

// Isolated is a network namespace, held by a descriptor alone, with a
// veth on the bridge.
type Isolated struct {
	bridge *Bridge
	addr   netip.Addr
	ns     netns.NsHandle
	veth   string
	// toEgress: the pod may connect to the egress process.
	toEgress bool

	mu        sync.Mutex // guards reachable, closed and the closing of ns, and orders route changes
	reachable bool
	closed    bool
}

// Open makes the namespace; toEgress lets the pod connect to the egress process at the
// bridge's address. The pod is not reachable yet.
func (b *Bridge) Open(addr netip.Addr, toEgress bool) (_ Pod, err error) {
	n := &Isolated{bridge: b, addr: addr, toEgress: toEgress, veth: VethName(b.hash, addr), ns: netns.None(), reachable: true}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if err := n.SetReachable(false); err != nil {
		return nil, err
	}
	if n.ns, err = newNamespace(); err != nil {
		return nil, err
	}
	link := &netlink.Veth{
		LinkAttrs:        netlink.LinkAttrs{Name: n.veth, MasterIndex: b.index, TxQLen: -1},
		PeerName:         "eth0",
		PeerHardwareAddr: podMAC(addr),
		PeerNamespace:    netlink.NsFd(int(n.ns)),
	}
	if err := netlink.LinkAdd(link); err != nil {
		return nil, fmt.Errorf("add %s: %w", n.veth, err)
	}
	if err := netlink.LinkSetIsolated(link, true); err != nil {
		return nil, fmt.Errorf("isolate %s: %w", n.veth, err)
	}
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+n.veth+"/disable_ipv6", []byte("1"), 0)
	if err := netlink.LinkSetUp(link); err != nil {
		return nil, fmt.Errorf("bring %s up: %w", n.veth, err)
	}
	return n, n.configure()
}

// configure sets up the inside. The only route leads to the machine, which is
// where requests come from, and closeOutgoing keeps the pod from more: it reaches
// no other pod, no server of the machine, and no internet.
func (n *Isolated) configure() error {
	_ = inNamespace(n.ns, func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", []byte("1"), 0)
	})
	h, err := netlink.NewHandleAt(n.ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("configure %s: %w", n.addr, err)
	}
	defer h.Close()
	if !n.bridge.leaveOutgoing {
		var open *way
		if n.toEgress {
			open = &way{from: n.addr, egress: GatewayOf(n.bridge.subnet)}
		}
		if err := closeOutgoing(n.ns, open); err != nil {
			return fmt.Errorf("configure %s: %w", n.addr, err)
		}
	}
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("configure %s: find lo: %w", n.addr, err)
	}
	eth, err := h.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("configure %s: find eth0: %w", n.addr, err)
	}
	host := &net.IPNet{IP: n.addr.AsSlice(), Mask: net.CIDRMask(32, 32)}
	gateway := &net.IPNet{IP: GatewayOf(n.bridge.subnet).AsSlice(), Mask: net.CIDRMask(32, 32)}
	for what, do := range map[string]func() error{
		"lo up":   func() error { return h.LinkSetUp(lo) },
		"address": func() error { return h.AddrAdd(eth, &netlink.Addr{IPNet: host}) },
	} {
		if err := do(); err != nil {
			return fmt.Errorf("configure %s: %s: %w", n.addr, what, err)
		}
	}
	if err := h.LinkSetUp(eth); err != nil {
		return fmt.Errorf("configure %s: eth0 up: %w", n.addr, err)
	}
	if err := h.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Dst: gateway, Scope: netlink.SCOPE_LINK}); err != nil {
		return fmt.Errorf("configure %s: route: %w", n.addr, err)
	}
	return nil
}

// File is a descriptor of the namespace of the caller's own. A closed network
// has none: its number may already be another file's.
func (n *Isolated) File() (*os.File, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, fmt.Errorf("open the pod's network: %w", net.ErrClosed)
	}
	fd, err := unix.FcntlInt(uintptr(n.ns), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the pod's network: %w", err)
	}
	return os.NewFile(uintptr(fd), "netns"), nil
}

// Addr is the pod's address.
func (n *Isolated) Addr() netip.Addr { return n.addr }

// Dial connects from inside the pod.
func (n *Isolated) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	f, err := n.File() // a probe's dial can outlive the pod
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	err = inNamespace(netns.NsHandle(f.Fd()), func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// SetReachable lets the machine reach the pod, or not.
func (n *Isolated) SetReachable(yes bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.reachable == yes {
		return nil
	}
	route := unreachable(n.addr)
	var err error
	if yes {
		if err = netlink.RouteDel(route); errors.Is(err, syscall.ESRCH) {
			err = nil
		}
	} else {
		err = netlink.RouteReplace(route)
	}
	if err != nil {
		return fmt.Errorf("set whether %s can be reached: %w", n.addr, err)
	}
	n.reachable = yes
	return nil
}

func unreachable(addr netip.Addr) *netlink.Route {
	return &netlink.Route{
		Dst:  &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(32, 32)},
		Type: unix.RTN_UNREACHABLE,
	}
}

// Close takes the network away; the pod's processes are dead.
func (n *Isolated) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	var errs []error
	if link, err := netlink.LinkByName(n.veth); err == nil {
		errs = append(errs, netlink.LinkDel(link))
	}
	if n.ns.IsOpen() {
		errs = append(errs, n.ns.Close())
	}
	errs = append(errs, sever(netip.PrefixFrom(n.addr, 32))) // the veth is gone: no new one comes to be
	if !n.reachable {
		if err := netlink.RouteDel(unreachable(n.addr)); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// newNamespace makes a network namespace and leaves the caller in its own.
func newNamespace() (ns netns.NsHandle, err error) {
	ns = netns.None()
	err = onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		ns, err = netns.Get()
		return err
	})
	return ns, err
}

// inNamespace runs f on a thread in ns.
func inNamespace(ns netns.NsHandle, f func() error) error {
	return onOwnThread(func() error {
		if err := netns.Set(ns); err != nil {
			return fmt.Errorf("enter the pod's network: %w", err)
		}
		return f()
	})
}

// onOwnThread runs f, which may change the thread's network namespace, in a
// goroutine with a thread of its own and restores the namespace. If that
// fails the goroutine ends locked, which ends the thread; no process depends
// on it, since only the launcher's thread forks.
func onOwnThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		own, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("find this thread's network: %w", err)
			return
		}
		err = f()
		if netns.Set(own) == nil {
			runtime.UnlockOSThread()
		}
		_ = own.Close()
		result <- err
	}()
	return <-result
}
