package node

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/test/kubetest"
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

// A client that waits for a pod whose network goes without a word, neither end nor reset
// of the connection, is told when the node has cleared the pod away. Clients of other
// pods are left alone.
func TestRequestToVanishedPod(t *testing.T) {
	n := startNode(t, IsolationFull)
	n.create(t, echoPod("a"), echoPod("b"))
	a, b := n.await(t, "a", "is ready", isReady), n.await(t, "b", "is ready", isReady)
	toA, toB := waitFor(t, a.Status.PodIP), waitFor(t, b.Status.PodIP)

	// From here on nothing that the pod says is heard.
	link, err := netlink.LinkByName(vethName(stateHash(n.opts.StateDir), netip.MustParseAddr(a.Status.PodIP)))
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkDel(link); err != nil {
		t.Fatal(err)
	}
	none := int64(0)
	if err := n.client.CoreV1().Pods(n.ns).Delete(t.Context(), "a", metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	select {
	case err := <-toA:
		if err == nil {
			t.Error("the request to the pod that is gone was answered")
		}
		t.Logf("told after %v: %v", time.Since(begun).Round(time.Millisecond), err)
	case <-time.After(20 * time.Second):
		t.Error("nobody told the request to the pod that is gone")
	}
	select {
	case err := <-toB:
		t.Errorf("the request to the other pod ended: %v", err)
	default:
	}
}

// A node that was killed has taken no network away. Its successor does, and resets the
// connections of clients that wait for what was in it.
func TestCleanSevers(t *testing.T) {
	needRoot(t)
	state := t.TempDir()
	subnet, err := PickSubnet(IsolationFull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = subnet.Close() })
	b, err := openBridge(stateHash(state), subnet.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = clean(state) })
	network, err := b.open(gatewayOf(subnet.Prefix).Next())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = network.Close() })
	var pod net.Listener
	if err := inNamespace(network.(*isolatedNetwork).ns, func() (err error) {
		pod, err = net.Listen("tcp4", ":8000")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pod.Close() })
	if err := network.SetReachable(true); err != nil {
		t.Fatal(err)
	}
	c, err := net.DialTimeout("tcp4", netip.AddrPortFrom(network.Addr(), 8000).String(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := clean(state); err != nil {
		t.Fatal(err)
	}
	if err := ends(c); err != nil {
		t.Error(err)
	}
}

// waitFor sends a request that is answered after a minute, and returns when it is
// connected.
func waitFor(t *testing.T, ip string) <-chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ip+":8000/sleep?seconds=60", nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	go func() {
		resp, err := tr.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		done <- err
	}()
	kubetest.Eventually(t, 5*time.Second, "the request to be under way", func() error {
		all, err := netlink.SocketDiagTCP(netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		for _, s := range all {
			if s.ID.Destination.String() == ip && s.State == netlink.TCP_ESTABLISHED {
				return nil
			}
		}
		return errors.New("no connection")
	})
	return done
}
