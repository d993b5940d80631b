package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// guardMetric makes the guard give way to the bridge's own route.
const guardMetric = 1 << 20

// The guard is a route that makes the whole subnet unreachable wherever the
// bridge's does not lead. It is there before a former node's bridge is taken
// away and stays when a node is killed: without it requests for pods that are
// gone would leave the machine by its default route, and what answers out
// there would be taken for the sandbox, on pooled connections for long after
// the node is back. A node that is told to stop, and Cleanup, remove it.

// guardFile says which subnet the guard of the node with this folder is for.
func guardFile(dir string) string { return filepath.Join(dir, "guarded-subnet") }

func guardRoute(subnet netip.Prefix) *netlink.Route {
	subnet = subnet.Masked()
	return &netlink.Route{
		Dst:  &net.IPNet{IP: subnet.Addr().AsSlice(), Mask: net.CIDRMask(subnet.Bits(), 32)},
		Type: unix.RTN_UNREACHABLE, Priority: guardMetric,
	}
}

// Guard sets the guard for the node with this folder. The file comes first: what it names can be removed.
func Guard(dir string, subnet netip.Prefix) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the node's folder: %w", err)
	}
	if err := os.WriteFile(guardFile(dir), []byte(subnet.String()), 0o600); err != nil {
		return fmt.Errorf("note the guarded subnet: %w", err)
	}
	if err := netlink.RouteReplace(guardRoute(subnet)); err != nil {
		return fmt.Errorf("guard %s: %w", subnet, err)
	}
	return nil
}

// Unguard removes the guard of the node with this folder, if there is one.
func Unguard(dir string) error {
	text, err := os.ReadFile(guardFile(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the guarded subnet: %w", err)
	}
	subnet, err := netip.ParsePrefix(strings.TrimSpace(string(text)))
	if err == nil { // else the node was killed while it wrote the file, and had set nothing
		if err := netlink.RouteDel(guardRoute(subnet)); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("remove the guard of %s: %w", subnet, err)
		}
	}
	if err := os.Remove(guardFile(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget the guarded subnet: %w", err)
	}
	return nil
}
