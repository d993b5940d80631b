package envoy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// rawPod listens on loopback, and serves each connection by hand: serve gets its number.
func rawPod(t *testing.T, serve func(number int, c net.Conn, r *bufio.Reader)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for number := 0; ; number++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				serve(number, c, bufio.NewReader(c))
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

// readHead reads a request up to its empty line; empty if the connection ends before.
func readHead(r *bufio.Reader) string {
	var head strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return ""
		}
		if line == "\r\n" {
			return head.String()
		}
		head.WriteString(line)
	}
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// recorder is a pod that answers everything, and keeps the heads of requests.
func recorder(t *testing.T) (at netip.AddrPort, heads <-chan string) {
	t.Helper()
	all := make(chan string, 100)
	return rawPod(t, func(_ int, c net.Conn, r *bufio.Reader) {
		for head := readHead(r); head != ""; head = readHead(r) {
			all <- head
			_, _ = io.WriteString(c, okAnswer)
		}
	}), all
}

// bothWorlds runs a test by ExtProc's answers, and by hits: of the sandbox "known". start
// starts Envoy, with the pod's address.
func bothWorlds(t *testing.T, test func(t *testing.T, start func(netip.AddrPort) *world)) {
	t.Run("ExtProc", func(t *testing.T) {
		t.Parallel()
		test(t, func(at netip.AddrPort) *world {
			w := startWorld(t, Options{}, true)
			w.gateway.answer = func(string) *extprocv3.ProcessingResponse { return to(at.String()) }
			return w
		})
	})
	t.Run("hit", func(t *testing.T) {
		t.Parallel()
		test(t, func(netip.AddrPort) *world {
			f := startFastWorld(t)
			_, port := f.put(t, "known")
			f.answers(t, "known", port)
			return f.world
		})
	})
}

// A sandbox's server gets the path that the client sent, byte for byte.
func TestPathsAsSent(t *testing.T) {
	t.Parallel()
	bothWorlds(t, func(t *testing.T, start func(netip.AddrPort) *world) {
		at, heads := recorder(t)
		w := start(at)
		for _, path := range []string{
			"/a//b", "//", "//a", "/a/./b/../c", "/..", "/a%2Fb%2f%2E%2e%7e%41", "/%252F", "/100%", "/%zz?%zz",
			`/a\b\..\c%5C`, "/a;b=c/,d:e@f!$&'()*+", "/a?//b/../c", "/a?", "/?x=?",
		} {
			resp, body := w.raw(t, "GET "+path+" HTTP/1.1\nHost: localhost\nX-Sandbox-Id: known\nX-Sandbox-Port: "+portOf(at))
			if resp.StatusCode != 200 {
				t.Errorf("%s: %d %s", path, resp.StatusCode, body)
			} else if head := <-heads; !strings.HasPrefix(head, "GET "+path+" HTTP/1.1\r\n") {
				t.Errorf("%s reached the pod as %q", path, head)
			}
		}
	})
}

func portOf(at netip.AddrPort) string { _, port, _ := net.SplitHostPort(at.String()); return port }

// HTTP/1.0, any method, and names of protocols to upgrade to reach the pod; an Upgrade
// to anything else does not, and its request does.
func TestRequestsAsSent(t *testing.T) {
	t.Parallel()
	bothWorlds(t, func(t *testing.T, start func(netip.AddrPort) *world) {
		at, heads := recorder(t)
		w := start(at)
		to := "\nHost: localhost\nX-Sandbox-Id: known\nX-Sandbox-Port: " + portOf(at)
		for line, answer := range map[string]string{
			"GET /a HTTP/1.0":        "HTTP/1.0",
			"GET /a HTTP/1.1":        "HTTP/1.1",
			"FROBNICATE /a HTTP/1.1": "HTTP/1.1",
			"purge /a HTTP/1.1":      "HTTP/1.1",
			"PROPFIND /a HTTP/1.1":   "HTTP/1.1",
		} {
			resp, body := w.raw(t, line+to)
			if resp.StatusCode != 200 || resp.Proto != answer {
				t.Errorf("%s: %s %d %s", line, resp.Proto, resp.StatusCode, body)
				continue
			}
			if head := <-heads; !strings.HasPrefix(head, strings.TrimSuffix(line, "0")[:len(line)-1]) {
				t.Errorf("%s reached the pod as %q", line, head)
			}
		}
		for protocol, passed := range map[string]string{
			"websocket": "websocket", "WebSocket": "WebSocket", "tcp": "tcp", "TCP": "TCP", "SPDY/3.1": "SPDY/3.1",
			"h2c, tcp": "tcp", "tcp, foo": "tcp",
			"h2c": "", "foo": "", "w": "", "websocke": "", "websockets": "", "tcpx": "", "TLS/1.0": "", "SPDY/3.10": "", "spdy/2": "",
		} {
			resp, body := w.raw(t, "GET /a HTTP/1.1"+to+"\nConnection: Upgrade, HTTP2-Settings\nUpgrade: "+protocol+"\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")
			if resp.StatusCode != 200 {
				t.Errorf("upgrade to %s: %d %s", protocol, resp.StatusCode, body)
				continue
			}
			head := strings.ToLower(<-heads)
			if want := "\r\nupgrade: " + strings.ToLower(passed) + "\r\n"; passed != "" && !strings.Contains(head, want) || passed == "" && strings.Contains(head, "\r\nupgrade:") {
				t.Errorf("upgrade to %s reached the pod as %q", protocol, head)
			}
		}
	})
}

// An upgraded connection carries bytes both ways, whatever the protocol is called.
func TestUpgradesCarryBytes(t *testing.T) {
	t.Parallel()
	at := rawPod(t, func(_ int, c net.Conn, r *bufio.Reader) {
		_ = readHead(r)
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: it\r\n\r\n")
		_, _ = io.Copy(c, r)
	})
	bothWorlds(t, func(t *testing.T, start func(netip.AddrPort) *world) {
		w := start(at)
		for _, protocol := range upgradeTypes {
			c := connect(t, w, 1, func(c net.Conn) {
				_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\nX-Sandbox-Id: known\r\nX-Sandbox-Port: "+portOf(at)+"\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n")
			})[0]
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			r := bufio.NewReader(c)
			if head := readHead(r); !strings.HasPrefix(head, "HTTP/1.1 101 ") {
				t.Errorf("%s: %q", protocol, head)
				continue
			}
			_, _ = io.WriteString(c, "ping\n")
			if got, err := r.ReadString('\n'); got != "ping\n" {
				t.Errorf("%s: %q, %v", protocol, got, err)
			}
		}
	})
}

// 64 KB of request headers pass, and 1,000 headers or 256 KB of an answer, also over HTTP/2.
func TestLargeHeaders(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("X-Many: a\r\n", maxAnswerHeaders-2)
	large := strings.Repeat("X-Large: "+strings.Repeat("a", 1015)+"\r\n", 256)
	at := rawPod(t, func(_ int, c net.Conn, r *bufio.Reader) {
		for head := readHead(r); head != ""; head = readHead(r) {
			answer := ""
			switch {
			case strings.HasPrefix(head, "GET /many "):
				answer = many
			case strings.HasPrefix(head, "GET /large "):
				answer = large
			}
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nX-Request: %d\r\n%sContent-Length: 0\r\n\r\n", len(head), answer)
		}
	})
	w := startWorld(t, Options{}, true)
	w.gateway.answer = func(string) *extprocv3.ProcessingResponse { return to(at.String()) }
	for name, set := range map[string]func(*http.Protocols){
		"HTTP/1.1": func(p *http.Protocols) { p.SetHTTP1(true) },
		"HTTP/2":   func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		protocols := new(http.Protocols)
		set(protocols)
		transport := &http.Transport{Protocols: protocols, MaxResponseHeaderBytes: 1 << 20}
		t.Cleanup(transport.CloseIdleConnections)
		for path, want := range map[string]func(http.Header) bool{
			"/sent":  func(h http.Header) bool { n, _ := strconv.Atoi(h.Get("X-Request")); return n > 64<<10 },
			"/many":  func(h http.Header) bool { return len(h["X-Many"]) == maxAnswerHeaders-2 },
			"/large": func(h http.Header) bool { return len(h["X-Large"]) == 256 },
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if path == "/sent" {
				for range 64 {
					r.Header.Add("X-Sent", strings.Repeat("a", 1024-len("x-sent: \r\n")))
				}
			}
			resp, err := transport.RoundTrip(r)
			if err != nil {
				t.Errorf("%s over %s: %v", path, name, err)
				continue
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK || !want(resp.Header) {
				t.Errorf("%s over %s: %d with %d headers", path, name, resp.StatusCode, len(resp.Header))
			}
		}
	}
}

// The scheme that a trusted front was asked by reaches the pod; without one, what clients
// say does not count.
func TestForwardedProto(t *testing.T) {
	t.Parallel()
	for hops, want := range map[int]string{0: "http", 1: "https"} {
		at, heads := recorder(t)
		w := startWorld(t, Options{TrustedHops: hops}, true)
		w.gateway.answer = func(string) *extprocv3.ProcessingResponse { return to(at.String()) }
		w.get(t, "/", "X-Forwarded-Proto", "https", "X-Forwarded-For", "192.0.2.1")
		if head := <-heads; !strings.Contains(head, "\r\nx-forwarded-proto: "+want+"\r\n") || !strings.Contains(head, "\r\nx-forwarded-for: 192.0.2.1,") {
			t.Errorf("%d hops: %q", hops, head)
		}
		if hops > 0 {
			w.get(t, "/") // a front that says nothing
			if head := <-heads; !strings.Contains(head, "\r\nx-forwarded-proto: http\r\n") {
				t.Errorf("without the header: %q", head)
			}
		}
	}
}
