package network

import (
	"net"
	"net/netip"
	"testing"
)

// A pod reaches the egress process on its ports, and nothing else of the machine; a pod
// without egress reaches not even that.
func TestPodsReachEgress(t *testing.T) {
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
	here := GatewayOf(subnet.Prefix)
	for _, port := range []uint16{53, 80, 443, 8080} {
		l, err := net.Listen("tcp4", netip.AddrPortFrom(here, port).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	addr := here.Next()
	for _, c := range []struct {
		toEgress bool
		port     uint16
		reaches  bool
	}{
		{true, 53, true},
		{true, 80, true},
		{true, 443, true},
		{true, 8080, false},
		{false, 53, false},
		{false, 443, false},
	} {
		pod, err := b.Open(addr, c.toEgress)
		if err != nil {
			t.Fatal(err)
		}
		if err := pod.SetReachable(true); err != nil {
			t.Fatal(err)
		}
		reached := dials(t, pod.(*Isolated), netip.AddrPortFrom(here, c.port))
		if reached != c.reaches {
			t.Errorf("%+v: reached: %v", c, reached)
		}
		if err := pod.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// dials reports whether a connection from inside the pod is made.
func dials(t *testing.T, pod *Isolated, to netip.AddrPort) bool {
	t.Helper()
	c, err := pod.Dial(t.Context(), "tcp4", to.String())
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}
