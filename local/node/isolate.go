package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// CanIsolate tries, without leaving anything behind, whether this process may
// isolate pods fully. The error says in one line what is missing.
func CanIsolate() error {
	if runtime.GOOS != "linux" {
		return errors.New("full isolation needs Linux")
	}
	if os.Geteuid() != 0 {
		return errors.New("full isolation needs root: run as root, or choose --isolation none")
	}
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET,
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("full isolation: this environment does not let root make namespaces (%w); choose --isolation none", err)
	}
	err := onOwnThread(func() error {
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
	if err != nil {
		return fmt.Errorf("full isolation: the kernel refuses a pod network (%w); choose --isolation none", err)
	}
	return nil
}
