package envoy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandlane/sandlane/kubeclient/backoff"
)

// withHealth gives options a health listener and returns its URL.
func (o *Options) withHealth(t *testing.T) string {
	o.HealthAddress = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	return "http://" + o.HealthAddress
}

func (w *world) serveHealth(t *testing.T) {
	w.serveAPI(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sandboxes" { // hangs
			<-r.Context().Done()
			return
		}
		fmt.Fprint(rw, "health")
	})
}

// fetchURL sends one request on a connection of its own.
func fetchURL(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return answerOf(client.Get(url))
}

// connect opens n connections to Envoy, on each of which begin may send something.
func connect(t *testing.T, w *world, n int, begin func(net.Conn)) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		begin(c)
		conns[i] = c
	}
	return conns
}

// wantClosed waits until Envoy has closed a connection, and returns when.
func wantClosed(t *testing.T, c net.Conn) time.Time {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("a connection was not closed: %v", err)
	}
	return time.Now()
}

// Connections that never get as far as a request do not shut out others for longer
// than the timeout, and the health listener answers all the while.
func TestSilentConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	const streams, timeout = 40, 2 * time.Second
	cert, key := selfSigned(t)
	for name, tc := range map[string]struct {
		tls   bool
		begin func(net.Conn)
	}{
		"silent":                   {false, func(net.Conn) {}},
		"part of a request line":   {false, func(c net.Conn) { _, _ = io.WriteString(c, "GET / HT") }},
		"part of the headers":      {false, func(c net.Conn) { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n") }},
		"part of HTTP/2's preface": {false, func(c net.Conn) { _, _ = io.WriteString(c, "PRI * HTTP") }},
		"TLS, silent":              {true, func(net.Conn) {}},
		"TLS, part of the hello":   {true, func(c net.Conn) { _, _ = c.Write([]byte{22, 3, 1, 2, 0, 1}) }},
		"TLS, part of a handshake": {true, func(c net.Conn) { startHandshake(c) }},
		"TLS, part of the headers": {true, func(c net.Conn) { _, _ = io.WriteString(handshake(c), "GET / HTTP/1.1\r\nHost: x\r\n") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Options{MaxStreams: streams, HeadersTimeout: timeout}
			if tc.tls {
				o.CertFile, o.KeyFile = cert, key
			}
			health := o.withHealth(t)
			w := startWorld(t, o, true)
			w.serveHealth(t)
			began := time.Now()
			conns := connect(t, w, streams, tc.begin)
			if got := fetchURL(t, health+"/health"); got != "200 health" {
				t.Errorf("/health while all connections are taken: %s", got)
			}
			for _, c := range conns {
				wantClosed(t, c)
			}
			if took := time.Since(began); took < timeout/2 || took > 2*timeout+10*time.Second {
				t.Errorf("closed after %v", took)
			}
			if tc.tls {
				c := connect(t, w, 1, func(net.Conn) {})[0]
				if err := tls.Client(c, insecure()).HandshakeContext(t.Context()); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			} else if got := fetchURL(t, w.url); got != "200 from the pod" {
				t.Errorf("afterwards: %s", got)
			}
		})
	}
}

func insecure() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}} //nolint:gosec // of this test's own Envoy
}

func handshake(c net.Conn) net.Conn {
	s := tls.Client(c, insecure())
	_ = s.Handshake()
	return s
}

// startHandshake says hello and never goes on.
func startHandshake(c net.Conn) {
	ctx, cancel := context.WithCancel(context.Background())
	_ = tls.Client(hello{c, cancel}, insecure()).HandshakeContext(ctx)
}

// hello is a connection that sends what it is first given and hears nothing.
type hello struct {
	net.Conn
	said func()
}

func (h hello) Read([]byte) (int, error) { return 0, io.EOF }
func (hello) Close() error               { return nil }

// Health is answered, and nothing else, on its listener, also while Envoy refuses
// requests for want of memory, and while the REST API has as many as it may.
func TestHealthListener(t *testing.T) {
	t.Parallel()
	t.Run("nothing else", func(t *testing.T) {
		t.Parallel()
		o := Options{}
		health := o.withHealth(t)
		w := startWorld(t, o, true)
		if got := fetchURL(t, health+"/health"); !strings.HasPrefix(got, "503 ") {
			t.Errorf("without a gateway: %s", got)
		}
		w.serveHealth(t)
		for path, want := range map[string]string{"/health": "200 health", "/": "404 {", "/healthz": "404 {", "/sandboxes": "404 {", "/health/../sandboxes": "404 {"} {
			if got := fetchURL(t, health+path); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s, want %s", path, got, want)
			}
		}
		if n := w.gateway.forget(); n > 0 {
			t.Errorf("ExtProc was asked %d times", n)
		}
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		o := Options{MaxHeapBytes: 1 << 20}
		health := o.withHealth(t)
		w := startWorld(t, o, true)
		w.serveHealth(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for strings.HasPrefix(fetchURL(t, w.url), "200") && backoff.Sleep(ctx, lookEvery) {
		}
		if got := fetchURL(t, w.url); !strings.HasPrefix(got, "503 ") {
			t.Errorf("a request beyond the heap: %s", got)
		}
		if got := fetchURL(t, health+"/health"); got != "200 health" {
			t.Errorf("/health: %s", got)
		}
	})
	t.Run("requests", func(t *testing.T) {
		t.Parallel()
		const streams = 20
		o := Options{MaxStreams: streams}
		health := o.withHealth(t)
		w := startWorld(t, o, true)
		w.serveHealth(t)
		connect(t, w, streams, func(c net.Conn) { _, _ = io.WriteString(c, "GET /sandboxes HTTP/1.1\r\nHost: localhost\r\n\r\n") })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for {
			open, err := w.admin.open(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if open.Requests == streams || !backoff.Sleep(ctx, lookEvery) {
				break
			}
		}
		if got := fetchURL(t, health+"/health"); got != "200 health" {
			t.Errorf("/health: %s", got)
		}
	})
}

// A client whose connection was made just before Envoy drains gets its answer,
// though it had not said anything yet.
func TestDrainWaitsForSilentConnections(t *testing.T) {
	t.Parallel()
	w := startWorld(t, Options{}, true)
	c := connect(t, w, 1, func(net.Conn) {})[0]
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		open, err := w.admin.open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if open.Connections == 1 {
			break
		}
		if !backoff.Sleep(ctx, lookEvery) {
			t.Fatal("a silent connection is not counted")
		}
	}
	began := time.Now()
	if _, err := w.admin.Drain(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < idleLinger {
		t.Errorf("drained after %v, with a client connected", took)
	}
	_ = c.Close()
}
