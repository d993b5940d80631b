package network

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Try tries, without leaving anything behind, whether this process may make the networks of pods.
func Try() error {
	return onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("network namespace: %w", err)
		}
		br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br", TxQLen: -1}}
		if err := netlink.LinkAdd(br); err != nil {
			return fmt.Errorf("bridge: %w", err)
		}
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v0", MasterIndex: br.Index, TxQLen: -1}, PeerName: "v1"}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("veth: %w", err)
		}
		if err := netlink.LinkSetIsolated(veth, true); err != nil {
			return fmt.Errorf("isolated bridge port: %w", err)
		}
		if err := netlink.LinkSetUp(veth); err != nil {
			return fmt.Errorf("link up: %w", err)
		}
		host := &net.IPNet{IP: net.IPv4(198, 18, 0, 2), Mask: net.CIDRMask(32, 32)}
		if err := netlink.RouteReplace(&netlink.Route{Dst: host, Type: unix.RTN_UNREACHABLE}); err != nil {
			return fmt.Errorf("unreachable route: %w", err)
		}
		return nil
	})
}
