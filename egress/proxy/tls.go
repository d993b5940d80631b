package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/sandlane/sandlane/egress/claims"
	"github.com/sandlane/sandlane/egress/names"
	"github.com/sandlane/sandlane/egress/peek"
	"github.com/sandlane/sandlane/egress/record"
	"github.com/sandlane/sandlane/egress/upstream"
)

const (
	// helloTimeout is how long a client may take until its handshake is done.
	helloTimeout = 10 * time.Second
	dialTimeout  = 10 * time.Second
)

const (
	portNames = 53
	portHTTP  = 80
	portHTTPS = 443
)

// alert is what a TLS client is told before its connection is closed (RFC 8446, 6.2).
type alert byte

const (
	alertAccessDenied     alert = 49
	alertInternal         alert = 80
	alertUnrecognizedName alert = 112
)

// serveTLS serves a connection to port 443.
func (s *Server) serveTLS(l *link, use *claims.Use, c *leased) {
	_ = c.SetDeadline(time.Now().Add(helloTimeout))
	name, taken, err := peek.Hello(c)
	if err != nil {
		s.became(l, verdictUnread)
		return
	}
	l.note(func(r *record.Record) { r.Host = name })
	host, err := names.Host(name) // a name that is empty or an address is none
	if err != nil {
		s.refuse(l, verdictUnread, alertUnrecognizedName)
		return
	}
	decision := use.Judge(host)
	switch {
	case !decision.Allowed:
		s.refuse(l, verdictDenied, alertAccessDenied)
	case decision.Rule != nil:
		l.note(func(r *record.Record) { r.Rule = decision.Rule.Pattern })
		s.intercept(l, use, host, &replayed{Conn: c, taken: taken})
	default:
		_ = c.SetDeadline(time.Time{})
		s.pass(l, use, host, c, taken)
	}
}

// refuse tells a TLS client why its connection is closed.
func (s *Server) refuse(l *link, verdict string, a alert) {
	s.became(l, verdict)
	_, _ = l.client.Write([]byte{21, 3, 3, 0, 2, 2, byte(a)}) // a record of type alert, fatal
}

// dial connects to a host for a claim, as far as its policy lets it, by its newest state.
func (s *Server) dial(ctx context.Context, use *claims.Use, host string, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return s.o.Upstream.Dial(ctx, host, port, func(addr netip.Addr) bool {
		claim := use.Claim()
		return claim != nil && claim.Policy.Dialled(host, addr)
	})
}

// pass passes a connection on byte for byte, from the bytes that were taken from it.
func (s *Server) pass(l *link, use *claims.Use, host string, c *leased, taken []byte) {
	up, err := s.dial(l.ctx, use, host, portHTTPS)
	switch {
	case errors.Is(err, upstream.ErrClosed):
		s.refuse(l, verdictClosed, alertAccessDenied)
		return
	case err != nil:
		s.refuse(l, verdictFailed, alertInternal)
		return
	case !l.add(up):
		return
	}
	s.became(l, verdictPassed)
	n, err := up.Write(taken)
	l.move(&l.sent, int64(n))
	if err != nil {
		return
	}
	var copying sync.WaitGroup
	run := func(to net.Conn, copy func() error) {
		copying.Go(func() {
			if err := copy(); err != nil {
				l.abort()
				return
			}
			if half, ok := to.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		})
	}
	run(up, func() error { return c.copyTo(up, l) })
	run(c.tcp, func() error { return l.copy(c.tcp, up) })
	copying.Wait()
}

// copy copies what comes from an upstream until its end. That is splice(2), as both are TCP,
// which tells of bytes when it returns: now and then it is interrupted, for the link to know
// that they pass.
func (l *link) copy(to, from net.Conn) error {
	for {
		if err := from.SetReadDeadline(time.Now().Add(l.quiet / 4)); err != nil {
			return err
		}
		n, err := io.Copy(to, from)
		if n > 0 {
			l.move(&l.received, n)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// intercept ends a TLS connection here, with a certificate for the host, and serves its
// requests.
func (s *Server) intercept(l *link, use *claims.Use, host string, c *replayed) {
	leaf, err := s.o.Authority.leaf(host)
	if err != nil {
		s.o.Log.Error("a certificate could not be made", "error", err)
		s.refuse(l, verdictFailed, alertInternal)
		return
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{*leaf}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
		// A session that is resumed would carry a name from one connection to the next.
		SessionTicketsDisabled: true,
	}
	c.r = &requests{s: s, link: l, use: use, scheme: "https", port: portHTTPS, host: host}
	c.r.connectAhead()
	secure := tls.Server(c, config)
	if err := secure.HandshakeContext(l.ctx); err != nil {
		s.became(l, verdictUnread)
		return
	}
	_ = c.SetDeadline(time.Time{})
	s.became(l, verdictIntercepted)
	s.serveRequests(c.r, secure, secure.ConnectionState().NegotiatedProtocol == "h2")
}

// replayed is a connection of which bytes were taken that are to be read again.
type replayed struct {
	net.Conn
	taken []byte
	r     *requests // set before its requests are served
}

// Read implements io.Reader.
func (c *replayed) Read(p []byte) (int, error) {
	if len(c.taken) > 0 {
		n := copy(p, c.taken)
		c.taken = c.taken[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}
