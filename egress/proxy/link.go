package proxy

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandlane/sandlane/egress/record"
)

// maxQuiet is how long a link may have no byte from or to an upstream, beyond the time until
// that is noticed. It is longer than services take to answer.
const maxQuiet = time.Hour

// link is a sandbox's connection with those that are made for it, which end together.
type link struct {
	ctx    context.Context // ends with the link
	cancel context.CancelFunc

	// quiet bounds the time without a byte, begun is when the link was made, and moved how
	// long after that a byte was last seen to pass.
	quiet time.Duration
	begun time.Time
	moved atomic.Int64

	// mu is never held while a method of a claims.Use is called: the table takes it, with its own
	// lock held, when it ends a claim.
	mu     sync.Mutex
	timer  *time.Timer // of look
	over   bool
	others map[net.Conn]struct{}
	client net.Conn
	// record is what has become of the link so far; without a verdict it is not kept.
	record record.Record

	// sent and received count bytes to and from upstreams.
	sent, received atomic.Int64
}

func newLink(ctx context.Context, client net.Conn, quiet time.Duration) *link {
	l := &link{client: client, others: map[net.Conn]struct{}{}, quiet: quiet, begun: time.Now()}
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(quiet, l.look)
	return l
}

// move notes that n bytes pass; way is sent or received.
func (l *link) move(way *atomic.Int64, n int64) {
	way.Add(n)
	l.moved.Store(int64(time.Since(l.begun)))
}

// note changes what is recorded of the link.
func (l *link) note(change func(*record.Record)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.record)
}

// recorded returns the record of a link that is over.
func (l *link) recorded() record.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.record
	r.Time, r.Seconds = l.begun, time.Since(l.begun).Seconds()
	r.Sent, r.Received = l.sent.Load(), l.received.Load()
	return r
}

// look ends the link if it has been quiet for too long, else looks again when it would have
// been.
func (l *link) look() {
	left := l.quiet - (time.Since(l.begun) - time.Duration(l.moved.Load()))
	if left <= 0 {
		l.abort()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.timer.Reset(left)
	}
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
	l.timer.Stop()
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

// linked is an upstream connection whose bytes its link notes, and which it forgets when it
// is closed.
type linked struct {
	net.Conn
	l *link
}

// Read implements net.Conn.
func (c linked) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.l.move(&c.l.received, int64(n))
	}
	return n, err
}

// Write implements net.Conn.
func (c linked) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.l.move(&c.l.sent, int64(n))
	}
	return n, err
}

// Close implements net.Conn.
func (c linked) Close() error {
	c.l.forget(c.Conn)
	return c.Conn.Close()
}
