package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandlane/sandlane/egress/claims"
	"github.com/sandlane/sandlane/egress/peek"
	"github.com/sandlane/sandlane/egress/record"
)

const (
	// headTimeout is how long a client may take to send a request's head, and requestIdle
	// how long a connection may be without a request, on both sides.
	headTimeout, requestIdle = 30 * time.Second, 2 * time.Minute
	// answerHeads bounds the heads of an upstream's answer.
	answerHeads = 1 << 20
)

// requests are those of one connection of a sandbox's. Its upstream connections are its own.
type requests struct {
	s      *Server
	link   *link
	use    *claims.Use
	scheme string
	port   uint16
	// upstream makes the requests, upgrading those for an upgrade, which HTTP/2 has not.
	upstream, upgrading *http.Transport
	// ahead has the connection that was begun before the first request, until that takes it.
	ahead atomic.Pointer[chan secured]

	mu sync.Mutex
	// host is what the connection is for: the server name of TLS, or the first request's.
	host string
	// active counts requests that are being served; closed: the HTTP server has let the
	// connection go; over is closed once it has and none is.
	active int
	closed bool
	over   chan struct{}
}

// servePlain serves a connection to port 80.
func (s *Server) servePlain(l *link, use *claims.Use, c *leased) {
	s.became(l, verdictPassed)
	s.serveRequests(&requests{s: s, link: l, use: use, scheme: "http", port: portHTTP}, c, false)
}

// unread bounds what one HTTP/2 connection keeps in memory of bodies that the other side does not
// read. Without it a sandbox that reads no answers makes this process keep 4 MiB of each.
func unread() *http.HTTP2Config {
	return &http.HTTP2Config{MaxConcurrentStreams: 100, MaxReceiveBufferPerStream: 512 << 10, MaxReceiveBufferPerConnection: 1 << 20}
}

// serveRequests serves a connection's requests, and returns when it does nothing for them
// any more.
func (s *Server) serveRequests(r *requests, c net.Conn, http2 bool) {
	r.over = make(chan struct{})
	r.upgrading = &http.Transport{
		DialContext: r.dial, TLSClientConfig: s.upstreamTLS(), TLSHandshakeTimeout: dialTimeout,
		IdleConnTimeout: requestIdle, ExpectContinueTimeout: time.Second, DisableCompression: true, MaxResponseHeaderBytes: answerHeads,
		HTTP2: unread(),
	}
	r.upstream = r.upgrading
	if r.scheme == "https" {
		r.upstream = r.upgrading.Clone()
		r.upstream.DialTLSContext, r.upstream.ForceAttemptHTTP2 = r.dialTLS, true
	}
	defer r.upgrading.CloseIdleConnections()
	defer r.upstream.CloseIdleConnections()
	var served net.Conn = &gated{Conn: c, r: r, gate: peek.NewGate(c, func(peek.Head) error { return nil })}
	if http2 {
		served = c
	}
	if s.handed.give(r.link.ctx, served) {
		<-r.over
	}
}

// dial connects to the connection's host. It ends with the link rather than with the request
// that it was begun for, since the next one may use the connection.
func (r *requests) dial(context.Context, string, string) (net.Conn, error) {
	up, err := r.s.dial(r.link.ctx, r.use, r.hostNow(), r.port)
	if err != nil {
		return nil, err
	}
	if !r.link.add(up) {
		return nil, net.ErrClosed
	}
	return linked{up, r.link}, nil
}

func (r *requests) hostNow() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.host
}

// isFor reports whether the connection is for the host; the first request says so where TLS
// has not.
func (r *requests) isFor(host string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.host == "" {
		r.host = host
		r.link.note(func(of *record.Record) { of.Host = host })
	}
	return r.host == host
}

// begin notes a request; false: nothing is served for the connection any more.
func (r *requests) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed && r.active == 0 {
		return false
	}
	r.active++
	return true
}

func (r *requests) end() { r.settle(func() { r.active-- }) }

// left says that the HTTP server has let the connection go.
func (r *requests) left() { r.settle(func() { r.closed = true }) }

func (r *requests) settle(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.closed && r.active == 0
	change()
	if !was && r.closed && r.active == 0 {
		close(r.over)
	}
}

// gated is an HTTP/1 connection whose requests have one reading.
type gated struct {
	net.Conn
	r    *requests
	gate *peek.Gate
}

// Read implements io.Reader.
func (c *gated) Read(p []byte) (int, error) {
	n, err := c.gate.Read(p)
	if errors.Is(err, peek.ErrHead) || errors.Is(err, peek.ErrTooLong) {
		c.r.link.note(func(of *record.Record) { of.Verdict = verdictUnread })
	}
	return n, err
}

// requestsOf returns what a connection of the HTTP server's is.
func requestsOf(c net.Conn) *requests {
	if secure, ok := c.(*tls.Conn); ok { // HTTP/2
		return secure.NetConn().(*replayed).r
	}
	return c.(*gated).r
}

type requestsKey struct{}

// newRequests is the HTTP server of all connections whose requests are judged.
func (s *Server) newRequests() *http.Server {
	return &http.Server{
		Handler: s.newForwarder(), ReadHeaderTimeout: headTimeout, IdleTimeout: requestIdle, HTTP2: unread(),
		ErrorLog: log.New(io.Discard, "", 0), // it has what clients and upstreams sent
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, requestsKey{}, requestsOf(c))
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				requestsOf(c).left()
			}
		},
	}
}

// handed are connections on their way to the HTTP server, as its listener.
type handed struct {
	conns chan net.Conn
	over  chan struct{}
	close func()
}

func newHanded() *handed {
	h := &handed{conns: make(chan net.Conn), over: make(chan struct{})}
	h.close = sync.OnceFunc(func() { close(h.over) })
	return h
}

// give hands a connection over; false: it was not taken.
func (h *handed) give(ctx context.Context, c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.over:
	case <-ctx.Done():
	}
	return false
}

// Accept implements net.Listener.
func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.over:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handed) Close() error { h.close(); return nil }

// Addr implements net.Listener.
func (*handed) Addr() net.Addr { return &net.TCPAddr{} }
