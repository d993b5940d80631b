package proxy

import (
	"context"
	"net"
	"sync"
)

// link is a sandbox's connection with those that are made for it, which end together.
type link struct {
	ctx    context.Context // ends with the link
	cancel context.CancelFunc

	mu     sync.Mutex
	over   bool
	others map[net.Conn]struct{}
	client net.Conn
}

func newLink(ctx context.Context, client net.Conn) *link {
	l := &link{client: client, others: map[net.Conn]struct{}{}}
	l.ctx, l.cancel = context.WithCancel(ctx)
	return l
}

// add makes a connection end with the link. False: the link is over, and so is c.
func (l *link) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		abort(c)
		return false
	}
	l.others[c] = struct{}{}
	return true
}

func (l *link) forget(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.others, c)
}

// abort ends all connections at once: what was not delivered is lost. It does not wait.
func (l *link) abort() { l.end(abort) }

// finish ends all connections and delivers what was sent on them.
func (l *link) finish() { l.end(func(c net.Conn) { _ = c.Close() }) }

func (l *link) end(each func(net.Conn)) {
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	each(l.client)
	for c := range l.others {
		each(c)
	}
}

func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// linked is an upstream connection that its link forgets when it is closed.
type linked struct {
	net.Conn
	l *link
}

// Close implements net.Conn.
func (c linked) Close() error {
	c.l.forget(c.Conn)
	return c.Conn.Close()
}
