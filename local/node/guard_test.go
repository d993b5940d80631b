package node

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
	o := testOptions(t, IsolationFull)
	hash := stateHash(o.StateDir)
	t.Cleanup(func() {
		if err := Cleanup(o.StateDir); err != nil {
			t.Error(err)
		}
	})
	addr := gatewayOf(o.Subnet).Next().Next()
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
		if err := guard(o.StateDir, o.Subnet); err != nil {
			t.Fatal(err)
		}
		if err := clean(o.StateDir); err != nil {
			t.Fatal(err)
		}
		nowhere(life + " has no bridge yet")
		b, err := openBridge(hash, o.Subnet)
		if err != nil {
			t.Fatal(err)
		}
		nowhere(life + " has no such pod")
		if _, err := b.open(addr); err != nil {
			t.Fatal(err)
		}
		nowhere(life + " has not opened the pod")
	}
	if err := Cleanup(o.StateDir); err != nil {
		t.Fatal(err)
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, guardRoute(o.Subnet), netlink.RT_FILTER_TYPE|netlink.RT_FILTER_DST)
	if err != nil || len(routes) > 0 {
		t.Errorf("left are %v, %v", routes, err)
	}
	if _, err := os.Stat(guardFile(o.StateDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the guard's file is left: %v", err)
	}
}
