package network

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// RemoveLinks removes the links of the node with this hash, and their routes.
func RemoveLinks(hash string) error {
	links, err := listed(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	var errs []error
	var subnets []netip.Prefix
	for _, link := range links {
		name := link.Attrs().Name
		if !strings.HasPrefix(name, "sl"+hash) {
			continue
		}
		if name == bridgeName(hash) {
			subnets, err = subnetsOf(link)
			errs = append(errs, err, removeRoutes(subnets))
		}
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, syscall.ENODEV) && !errors.As(err, &netlink.LinkNotFoundError{}) {
			errs = append(errs, fmt.Errorf("remove link %s: %w", name, err))
		}
	}
	for _, subnet := range subnets {
		errs = append(errs, sever(subnet))
	}
	return errors.Join(errs...)
}

// subnetsOf are the networks of the bridge's addresses; there is one.
func subnetsOf(bridge netlink.Link) ([]netip.Prefix, error) {
	addrs, err := listed(func() ([]netlink.Addr, error) { return netlink.AddrList(bridge, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("list the bridge's addresses: %w", err)
	}
	var subnets []netip.Prefix
	for _, addr := range addrs {
		ip, ok := netip.AddrFromSlice(addr.IP.To4())
		if bits, _ := addr.Mask.Size(); ok {
			subnets = append(subnets, netip.PrefixFrom(ip, bits).Masked())
		}
	}
	return subnets, nil
}

// removeRoutes removes the unreachable routes of addresses inside the subnets.
func removeRoutes(subnets []netip.Prefix) error {
	routes, err := listed(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Type: unix.RTN_UNREACHABLE}, netlink.RT_FILTER_TYPE)
	})
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	var errs []error
	for _, route := range routes {
		if route.Dst == nil || route.Priority == guardMetric {
			continue
		}
		to, _ := netip.AddrFromSlice(route.Dst.IP.To4())
		for _, subnet := range subnets {
			if subnet.Contains(to) {
				if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, syscall.ESRCH) {
					errs = append(errs, fmt.Errorf("remove the route to %s: %w", route.Dst, err))
				}
			}
		}
	}
	return errors.Join(errs...)
}
