package e2b

import (
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// nameServer answers for one domain and the names below it, with one address. No other name
// exists, and nothing is passed on.
type nameServer struct {
	// addr is where it listens, on the port that resolv.conf cannot change.
	addr  netip.Addr
	asked atomic.Int64 // for names of the domain
	is    netip.Addr   // what names are
}

// startNameServer listens on a loopback address of its own until the test ends; here: names
// are that address, else 127.0.0.1.
func startNameServer(t *testing.T, domain string, here bool) *nameServer {
	t.Helper()
	s := &nameServer{}
	var conn *net.UDPConn
	for last := byte(1); conn == nil && last < 250; last++ { // another run may have one
		s.addr = netip.AddrFrom4([4]byte{127, 53, 53, last})
		conn, _ = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.addr, 53)))
	}
	if conn == nil {
		t.Fatal("no loopback address has port 53 free for a name server")
	}
	if s.is = netip.AddrFrom4([4]byte{127, 0, 0, 1}); here {
		s.is = s.addr
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return // closed
			}
			if answer, ok := s.answer(domain, buf[:n]); ok {
				_, _ = conn.WriteToUDPAddrPort(answer, from) // who does not get it asks again
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return s
}

// answer makes the answer to a question; false if it is none.
func (s *nameServer) answer(domain string, packet []byte) ([]byte, bool) {
	var p dnsmessage.Parser
	header, err := p.Start(packet)
	if err != nil || header.Response {
		return nil, false
	}
	q, err := p.Question()
	if err != nil {
		return nil, false
	}
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	known := name == domain || strings.HasSuffix(name, "."+domain)
	m := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: header.ID, Response: true, Authoritative: true, RecursionDesired: header.RecursionDesired, RecursionAvailable: true,
		},
		Questions: []dnsmessage.Question{q},
	}
	switch {
	case !known:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60},
			Body:   &dnsmessage.AResource{A: s.is.As4()},
		}}
	}
	if known {
		s.asked.Add(1)
	}
	out, err := m.Pack()
	return out, err == nil
}
