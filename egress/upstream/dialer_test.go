package upstream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/sandlane/sandlane/egress"
)

func every(netip.Addr) bool { return true }

// dialer resolves each name to the addresses; it opens internal.example at 127.0.0.0/8.
func dialer(t *testing.T, addrs ...string) *Dialer {
	t.Helper()
	closed, err := egress.ClosedRanges([]string{"203.0.113.0/24"})
	if err != nil {
		t.Fatal(err)
	}
	return &Dialer{
		Closed: closed, Own: map[string][]netip.Prefix{"internal.example": {netip.MustParsePrefix("127.0.0.0/8")}},
		Resolve: func(context.Context, string) (read []netip.Addr, _ error) {
			for _, a := range addrs {
				read = append(read, netip.MustParseAddr(a))
			}
			return read, nil
		},
	}
}

func TestOpens(t *testing.T) {
	d := dialer(t)
	for _, open := range []string{"1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "198.20.0.1", "223.255.255.255"} {
		if !d.opens("api.example", netip.MustParseAddr(open)) {
			t.Errorf("%s is closed", open)
		}
	}
	for _, closed := range []string{
		"169.254.169.254", "127.0.0.1", "127.255.0.1", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "0.0.0.0", "0.1.2.3",
		"100.64.0.1", "192.0.0.192", "198.18.0.1", "198.19.255.255", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
		"203.0.113.7", "::1", "fe80::1", "fd00:ec2::254", "2001:db8::1", "2606:4700::1", "::ffff:1.1.1.1", "64:ff9b::a00:1",
	} {
		if d.opens("api.example", netip.MustParseAddr(closed)) {
			t.Errorf("%s is open", closed)
		}
	}
	if !d.opens("internal.example", netip.MustParseAddr("127.0.0.1")) || d.opens("internal.example", netip.MustParseAddr("10.0.0.1")) {
		t.Error("an operator's host is open at its block, and only there")
	}
}

// A public address of the machine that egress runs on leads to the machine's own servers.
func TestOwnAddressesAreClosed(t *testing.T) {
	d := dialer(t)
	d.interfaces = func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.ParseIP("198.51.100.7"), Mask: net.CIDRMask(24, 32)}}, nil
	}
	if d.opens("api.example", netip.MustParseAddr("198.51.100.7")) || !d.opens("api.example", netip.MustParseAddr("198.51.100.8")) {
		t.Error("of a machine's network its own address is closed, and only that")
	}
	d.interfaces = func() ([]net.Addr, error) { return nil, errors.New("no netlink") }
	if d.opens("api.example", netip.MustParseAddr("198.51.100.8")) {
		t.Error("an address is open that may be the machine's")
	}
}

func TestDial(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).AddrPort().Port()
	// Nothing listens at 127.0.0.2; addresses that are closed are passed over.
	d := dialer(t, "169.254.169.254", "::1", "127.0.0.2", "::ffff:127.0.0.1")
	c, err := d.Dial(t.Context(), "internal.example", port, every)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.RemoteAddr().String(); got != l.Addr().String() {
		t.Errorf("connected to %s", got)
	}
	// The same server by a name that anybody may give its address, and against the policy.
	if c, err := d.Dial(t.Context(), "rebound.example", port, every); !errors.Is(err, ErrClosed) {
		t.Errorf("%v, %v", c, err)
	}
	if c, err := d.Dial(t.Context(), "internal.example", port, func(netip.Addr) bool { return false }); !errors.Is(err, ErrClosed) {
		t.Errorf("%v, %v", c, err)
	}
	if c, err := dialer(t, "127.0.0.2").Dial(t.Context(), "internal.example", port, every); err == nil || errors.Is(err, ErrClosed) {
		t.Errorf("%v, %v", c, err)
	}
}
