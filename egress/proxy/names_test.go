package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandlane/sandlane/egress/names"
)

// ask sends a question as the pod does, by UDP and by TCP, and returns the answer in words.
func (w *world) ask(t *testing.T, n byte, name string, kind dnsmessage.Type) string {
	t.Helper()
	question := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName(name + "."), Type: kind, Class: dnsmessage.ClassINET,
	}}}
	b, err := question.Pack()
	if err != nil {
		t.Fatal(err)
	}
	from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(podAddr(n), 0))
	c, err := (&net.Dialer{LocalAddr: from}).DialContext(t.Context(), "udp4", w.o.Listeners.Names.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = c.Write(b)
	reply := make([]byte, 512)
	length, err := c.Read(reply)
	if err != nil {
		t.Fatal(err)
	}
	byUDP := words(t, reply[:length])
	stream, err := tryFrom(t, n, w.o.Listeners.NameStreams)
	if errors.Is(err, syscall.ECONNRESET) { // refused before connect has returned
		return byUDP + ", by TCP nothing"
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = stream.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...))
	var size [2]byte
	if _, err := io.ReadFull(stream, size[:]); err != nil {
		return byUDP + ", by TCP nothing"
	}
	reply = make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(stream, reply); err != nil {
		t.Fatal(err)
	}
	if byTCP := words(t, reply); byTCP != byUDP {
		t.Errorf("%s: %s by UDP, %s by TCP", name, byUDP, byTCP)
	}
	return byUDP
}

func words(t *testing.T, reply []byte) string {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(reply); err != nil {
		t.Fatal(err)
	}
	text := m.RCode.String()
	for _, a := range m.Answers {
		text += fmt.Sprint(" ", netip.AddrFrom4(a.Body.(*dnsmessage.AResource).A))
	}
	return text
}

func TestNames(t *testing.T) {
	w := newWorld(t, nil)
	w.claim(t, 1, "c1", ruled(secretValue))
	w.claim(t, 2, "c2", names.Rules{Headers: map[string]map[string]string{"ruled.example": {"X-A": "b"}}})
	w.addrs["real.example"], w.addrs["private.example"], w.addrs["none.example"] = "1.2.3.4", "10.0.0.1", "none"
	const gone, none = "RCodeNameError", "RCodeSuccess"
	for _, c := range []struct {
		pod  byte
		name string
		kind dnsmessage.Type
		want string
	}{
		{1, "api.example", dnsmessage.TypeA, "RCodeSuccess 192.0.2.1"},
		{1, "RULED.example", dnsmessage.TypeA, "RCodeSuccess 192.0.2.1"},
		{1, "api.example", dnsmessage.TypeAAAA, none},
		{1, "api.example", dnsmessage.TypeHTTPS, none},
		{1, "api.example", dnsmessage.TypeTXT, none},
		{1, "other.example", dnsmessage.TypeA, gone},
		{1, "c2VjcmV0.tunnel.example", dnsmessage.TypeTXT, gone},
		{2, "ruled.example", dnsmessage.TypeA, "RCodeSuccess 192.0.2.1"},
		{2, "real.example", dnsmessage.TypeA, "RCodeSuccess 1.2.3.4"},
		{2, "real.example", dnsmessage.TypeTXT, none},
		{2, "private.example", dnsmessage.TypeA, none},
		{2, "none.example", dnsmessage.TypeA, gone},
		{3, "api.example", dnsmessage.TypeA, "RCodeRefused, by TCP nothing"},
	} {
		if got := w.ask(t, c.pod, c.name, c.kind); got != c.want {
			t.Errorf("pod %d, %s %s: %s, want %s", c.pod, c.name, c.kind, got, c.want)
		}
	}
}
