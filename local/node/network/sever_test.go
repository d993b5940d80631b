package network

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
)

// severLimit is how long a connection that was severed may seem alive.
const severLimit = 5 * time.Second

// Only connections to the prefix end; others, and listeners, do not.
func TestSever(t *testing.T) {
	needRoot(t)
	pair := func(address string) (net.Listener, net.Conn) {
		l, err := net.Listen("tcp4", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		c, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return l, c
	}
	listener, gone := pair("127.86.4.1:0")
	_, near := pair("127.86.4.2:0")
	_, neighbour := pair("127.86.6.1:0")
	if err := sever(netip.MustParsePrefix("127.86.4.1/32")); err != nil {
		t.Fatal(err)
	}
	if err := ends(gone); err != nil {
		t.Error(err)
	}
	if err := lives(near); err != nil {
		t.Errorf("another address: %v", err)
	}
	if err := sever(netip.MustParsePrefix("127.86.4.0/23")); err != nil {
		t.Fatal(err)
	}
	if err := ends(near); err != nil {
		t.Errorf("an address of the subnet: %v", err)
	}
	if err := lives(neighbour); err != nil {
		t.Errorf("an address outside the subnet: %v", err)
	}
	c, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		t.Fatalf("the listener went: %v", err)
	}
	_ = c.Close()
}

// ends waits for a connection to fail.
func ends(c net.Conn) error {
	_ = c.SetReadDeadline(time.Now().Add(severLimit))
	_, err := c.Read(make([]byte, 1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("the connection is still there")
	case err == nil || errors.Is(err, io.EOF):
		return errors.New("the connection has ended as if all had been said")
	}
	return nil
}

// lives looks whether a connection has failed.
func lives(c net.Conn) error {
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.Join(errors.New("the connection is gone"), err)
	}
	return nil
}

// A node that was killed has taken no network away. RemoveLinks does, and resets the
// connections of clients that wait for what was in it.
func TestRemoveLinksSevers(t *testing.T) {
	needRoot(t)
	hash := hashOf(t)
	subnet, err := PickSubnet(true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = subnet.Close() })
	b, err := OpenBridge(hash, subnet.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = RemoveLinks(hash) })
	pod, err := b.Open(GatewayOf(subnet.Prefix).Next(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pod.Close() })
	var server net.Listener
	if err := inNamespace(pod.(*Isolated).ns, func() (err error) {
		server, err = net.Listen("tcp4", ":8000")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	if err := pod.SetReachable(true); err != nil {
		t.Fatal(err)
	}
	c, err := net.DialTimeout("tcp4", netip.AddrPortFrom(pod.Addr(), 8000).String(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := RemoveLinks(hash); err != nil {
		t.Fatal(err)
	}
	if err := ends(c); err != nil {
		t.Error(err)
	}
}
