package sandboxd

import (
	"context"
	"net"
	"net/http"
	"sync"

	"golang.org/x/sys/unix"
)

// connections has the open connections of clients. Its zero value has none; it is safe for
// concurrent use.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

// note is http.Server's ConnState.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if c.open == nil {
			c.open = map[net.Conn]struct{}{}
		}
		c.open[conn] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
}

// closeAllBut closes every connection but one.
func (c *connections) closeAllBut(spared net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		if conn != spared {
			_ = conn.Close() // http.Server then calls note
		}
	}
}

type connectionKey struct{}

// unsentLimit bounds what the kernel keeps of an answer that the other end does not take yet: a
// sandbox's memory pays for it, for each connection.
const unsentLimit = 128 << 10

// ownConnection is http.Server's ConnContext.
func ownConnection(ctx context.Context, conn net.Conn) context.Context {
	if tcp, ok := conn.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { // where it fails, the kernel's own bound of some MB holds
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentLimit)
			})
		}
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// connectionOf returns the connection of a request's context; nil without one.
func connectionOf(ctx context.Context) net.Conn {
	conn, _ := ctx.Value(connectionKey{}).(net.Conn)
	return conn
}
