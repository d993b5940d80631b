package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// dialTimeout is far longer than a connection over loopback takes, unless the
	// server's queue is full.
	dialTimeout = 10 * time.Second
	// acceptPause is the delay after an error such as too many open files.
	acceptPause = 50 * time.Millisecond
)

// entrance is the relay's listener for one port on one of the sandbox's addresses.
type entrance struct {
	listener *net.TCPListener
	servers  atomic.Pointer[[]netip.AddrPort] // the servers to connect to, in this order
	lost     chan<- struct{}
	serving  *sync.WaitGroup
}

// serve accepts connections until the listener is closed.
func (e *entrance) serve(ctx context.Context) {
	for {
		client, err := e.listener.AcceptTCP()
		switch {
		case err == nil:
			e.serving.Go(func() { e.pass(ctx, client) })
		case errors.Is(err, net.ErrClosed):
			return
		default:
			pause := time.NewTimer(acceptPause)
			select {
			case <-pause.C:
			case <-ctx.Done(): // the listener is about to be closed
			}
			pause.Stop()
		}
	}
}

// pass connects a client to the server, and returns when both directions have ended. If no
// server answers, it resets the client's connection.
func (e *entrance) pass(ctx context.Context, client *net.TCPConn) {
	defer func() { _ = client.Close() }()
	server := e.dial(ctx)
	if server == nil {
		_ = client.SetLinger(0)
		select {
		case e.lost <- struct{}{}:
		default: // a scan is due already
		}
		return
	}
	defer func() { _ = server.Close() }()
	cut := func() {
		_ = client.Close()
		_ = server.Close()
	}
	defer context.AfterFunc(ctx, cut)()
	back := make(chan struct{})
	go func() {
		defer close(back)
		half(client, server, cut)
	}()
	half(server, client, cut)
	<-back
}

// half copies one direction, and its end. ReadFrom splices between two TCP connections. After
// an error it cuts both connections.
func half(to, from *net.TCPConn, cut func()) {
	if _, err := to.ReadFrom(from); err != nil {
		cut()
		return
	}
	_ = to.CloseWrite()
}

// dial connects to the first server that answers; nil if none does.
func (e *entrance) dial(ctx context.Context) *net.TCPConn {
	dialer := net.Dialer{Timeout: dialTimeout}
	for _, at := range *e.servers.Load() {
		if conn, err := dialer.DialContext(ctx, "tcp", at.String()); err == nil {
			return conn.(*net.TCPConn)
		}
	}
	return nil
}
