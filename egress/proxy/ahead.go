package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// aheadFresh is how long after its handshake a connection is good for a first request: hosts
// close those on which none comes, and a request is not repeated.
const aheadFresh = 2 * time.Second

// secured is how a connection to a host was made.
type secured struct {
	c   *tls.Conn
	err error
	at  time.Time
}

// connectAhead begins the connection to a host for which the client's ClientHello was judged,
// while the client's handshake goes on. It has nothing of a rule's: requests are judged before
// they are sent.
func (r *requests) connectAhead() {
	made := make(chan secured, 1)
	r.ahead.Store(&made)
	go func() {
		c, err := r.connect()
		made <- secured{c, err, time.Now()}
	}()
}

// dialTLS returns the connection that was begun ahead, once, or else a new one. Like dial it
// ends with the link.
func (r *requests) dialTLS(ctx context.Context, _, _ string) (net.Conn, error) {
	if made := r.ahead.Swap(nil); made != nil {
		select {
		case one := <-*made:
			switch {
			case time.Since(one.at) > aheadFresh:
				if one.err == nil {
					_ = one.c.Close()
				}
			case one.err != nil:
				return nil, one.err
			default:
				return one.c, nil
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	c, err := r.connect()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// connect connects to the connection's host by TLS.
func (r *requests) connect() (*tls.Conn, error) {
	up, err := r.dial(r.link.ctx, "", "")
	if err != nil {
		return nil, err
	}
	config := r.s.upstreamTLS()
	config.ServerName, config.NextProtos = r.hostNow(), []string{"h2", "http/1.1"}
	c := tls.Client(up, config)
	ctx, cancel := context.WithTimeout(r.link.ctx, dialTimeout)
	defer cancel()
	if err := c.HandshakeContext(ctx); err != nil {
		_ = up.Close()
		return nil, err
	}
	return c, nil
}

// upstreamTLS is how hosts with rules are verified.
func (s *Server) upstreamTLS() *tls.Config {
	return &tls.Config{RootCAs: s.o.Roots, MinVersion: tls.VersionTLS12, ClientSessionCache: s.sessions}
}
