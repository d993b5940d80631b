package node

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// nodeEnv marks the processes of a node without isolation, so that Cleanup
	// finds those that outlived it.
	nodeEnv = "SANDLANE_NODE"
	// addressEnv and podIPEnv are where a pod of such a node is to listen.
	addressEnv, podIPEnv = "SANDLANE_ADDRESS", "POD_IP"
)

// PlainEnv returns the names of the variables that a container of a node without
// isolation is to hand on to the programs that it starts: without them Cleanup does
// not find these, nor they the address that is theirs.
func PlainEnv() []string { return []string{nodeEnv, addressEnv, podIPEnv} }

// Cleanup removes what a node with this state folder left on the machine:
// processes, links, routes, cgroups, and the folders of its containers. It
// touches nothing that does not carry the folder's hash. The node must not be
// running. Nothing to remove is no error.
func Cleanup(stateDir string) error {
	err := clean(stateDir)
	if os.Geteuid() == 0 {
		err = errors.Join(err, unguard(stateDir))
	}
	return err
}

// clean is Cleanup but for the guard of the subnet.
func clean(stateDir string) error {
	hash := stateHash(stateDir)
	var errs []error
	killMarked(hash)
	removeCgroups(hash)
	if os.Geteuid() == 0 {
		errs = append(errs, removeLinks(hash))
	}
	if err := os.RemoveAll(filepath.Join(nodeDir(stateDir), "pods")); err != nil {
		errs = append(errs, fmt.Errorf("remove the containers' folders: %w", err))
	}
	return errors.Join(errs...)
}

func removeLinks(hash string) error {
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

// removeCgroups kills what is in the node's groups and removes them. A process is in one of
// each controller, and dies only when that of the freezer is thawed: so all are killed and
// thawed before the first is removed, and killed first, so that nothing frozen runs again.
func removeCgroups(hash string) {
	bases, _ := filepath.Glob(filepath.Join(cgroupRoot, "*", cgroupName(hash)))
	bases = append(bases, filepath.Join(cgroupRoot, cgroupName(hash)))
	var groups []string
	for _, base := range bases {
		files, _ := filepath.Glob(filepath.Join(base, "*", "cgroup.procs"))
		for _, file := range files {
			groups = append(groups, filepath.Dir(file))
			raw, _ := os.ReadFile(file)
			for _, pid := range strings.Fields(string(raw)) {
				if n, err := strconv.Atoi(pid); err == nil {
					_ = syscall.Kill(n, syscall.SIGKILL)
				}
			}
		}
	}
	for _, group := range groups {
		_ = thaw(group)
	}
	for _, group := range append(groups, bases...) {
		removeGroup(group)
	}
}

// killMarked kills every process that carries this node's mark.
func killMarked(hash string) {
	mark := []byte(nodeEnv + "=" + hash)
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, kv := range bytes.Split(raw, []byte{0}) {
			if bytes.Equal(kv, mark) {
				if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && pid != os.Getpid() {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
				break
			}
		}
	}
}
