package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// proxied returns the address of a proxy that answers each request with the text and closes,
// and what it was asked for.
func proxied(t *testing.T, text string) (at netip.AddrPort, asked <-chan string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	seen := make(chan string, 8)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				seen <- r.Method + " " + r.Host
			}
			_, _ = io.WriteString(c, text)
			_ = c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort(), seen
}

// With a proxy of the operator's a host is reached by it, at the address that was judged; a
// host of the operator's own, and a closed address, never are.
func TestDialByProxy(t *testing.T) {
	d := dialer(t, "169.254.169.254", "198.51.100.8")
	d.interfaces = func() ([]net.Addr, error) { return nil, nil }
	var asked <-chan string
	d.Proxy, asked = proxied(t, "HTTP/1.1 200 Connection established\r\nX: y\r\n\r\nhello")
	c, err := d.Dial(t.Context(), "api.example", 443, every)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if text, err := io.ReadAll(c); err != nil || string(text) != "hello" {
		t.Errorf("behind the answer came %q, %v", text, err)
	}
	if got := <-asked; got != "CONNECT 198.51.100.8:443" {
		t.Errorf("the proxy was asked for %s", got)
	}
	own := dialer(t, "127.0.0.2")
	own.Proxy = d.Proxy
	if c, err := own.Dial(t.Context(), "internal.example", 443, every); err == nil || errors.Is(err, ErrClosed) {
		t.Errorf("an internal host: %v, %v", c, err)
	}
	closed := dialer(t, "169.254.169.254")
	closed.Proxy = d.Proxy
	if c, err := closed.Dial(t.Context(), "api.example", 443, every); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed address: %v, %v", c, err)
	}
	if len(asked) > 0 {
		t.Errorf("the proxy was asked for %s too", <-asked)
	}
}

// Any status 2xx opens the tunnel (RFC 9110, 9.3.6), whatever length the answer claims to have.
func TestProxySucceeds(t *testing.T) {
	for _, status := range []string{"200 OK", "201 Created", "204 No Content", "299 Yes\r\nContent-Length: 3"} {
		d := dialer(t, "198.51.100.8")
		d.interfaces = func() ([]net.Addr, error) { return nil, nil }
		d.Proxy, _ = proxied(t, "HTTP/1.1 "+status+"\r\n\r\nhello")
		c, err := d.Dial(t.Context(), "api.example", 443, every)
		if err != nil {
			t.Errorf("%q: %v", status, err)
			continue
		}
		if text, err := io.ReadAll(c); err != nil || string(text) != "hello" {
			t.Errorf("%q: behind the answer came %q, %v", status, text, err)
		}
		_ = c.Close()
	}
}

// A proxy that refuses, talks without end, or says nothing opens nothing.
func TestProxyRefuses(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"HTTP/1.1 403 Forbidden\r\n\r\n", "403"},
		{"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", "302"},
		{"HTTP/1.1 101 Switching Protocols\r\n\r\n", "101"},
		{"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 2*maxAnswer), "EOF"},
		{"", "EOF"},
	} {
		d := dialer(t, "198.51.100.8")
		d.interfaces = func() ([]net.Addr, error) { return nil, nil }
		d.Proxy, _ = proxied(t, tc.text)
		if c, err := d.Dial(t.Context(), "api.example", 443, every); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%.20q: %v, %v", tc.text, c, err)
		}
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0") // it accepts nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	d := dialer(t, "198.51.100.8")
	d.interfaces = func() ([]net.Addr, error) { return nil, nil }
	d.Proxy = l.Addr().(*net.TCPAddr).AddrPort()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := d.Dial(ctx, "api.example", 443, every)
		ended <- err
	}()
	cancel()
	if err := <-ended; err == nil {
		t.Error("connected by a proxy that says nothing")
	}
}
