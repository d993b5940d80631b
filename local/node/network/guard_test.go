package network

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// What is dialled for a pod that is gone leads nowhere, and above all not out
// of the machine: after the node was killed, while its successor takes the old
// bridge away, and when there is a new one.
func TestAddressesWithoutANodeLeadNowhere(t *testing.T) {
	needRoot(t)
	subnet, err := PickSubnet(true)
	if err != nil {
		t.Fatal(err)
	}
	dir, hash := t.TempDir(), hashOf(t)
	t.Cleanup(func() {
		if err := errors.Join(RemoveLinks(hash), Unguard(dir), subnet.Close()); err != nil {
			t.Error(err)
		}
	})
	addr := GatewayOf(subnet.Prefix).Next().Next()
	nowhere := func(when string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(addr.String(), "8000"))
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, syscall.EHOSTUNREACH) {
			t.Errorf("%s: dialling %s: %v, want EHOSTUNREACH", when, addr, err)
		}
	}
	for _, life := range []string{"the first node", "the next node"} {
		if err := Guard(dir, subnet.Prefix); err != nil {
			t.Fatal(err)
		}
		if err := RemoveLinks(hash); err != nil {
			t.Fatal(err)
		}
		nowhere(life + " has no bridge yet")
		b, err := OpenBridge(hash, subnet.Prefix)
		if err != nil {
			t.Fatal(err)
		}
		nowhere(life + " has no such pod")
		if _, err := b.Open(addr, false); err != nil {
			t.Fatal(err)
		}
		nowhere(life + " has not opened the pod")
	}
	if err := errors.Join(RemoveLinks(hash), Unguard(dir)); err != nil {
		t.Fatal(err)
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, guardRoute(subnet.Prefix), netlink.RT_FILTER_TYPE|netlink.RT_FILTER_DST)
	if err != nil || len(routes) > 0 {
		t.Errorf("left are %v, %v", routes, err)
	}
	if _, err := os.Stat(guardFile(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the guard's file is left: %v", err)
	}
}
