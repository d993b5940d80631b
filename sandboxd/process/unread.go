package process

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/sandlane/sandlane/sandboxd/processpb"
)

const (
	// unreadFor is how long a client may take no byte of a stream while bytes wait for it.
	unreadFor = 30 * time.Second
	// looks is how often in this time its connection is looked at.
	looks = 10
	// farewell is how long a client that was cut has to read the error. Then its connection is
	// closed, so that a proxy resets the stream: over HTTP/2 its unread bytes take room from
	// all streams of the client's connection. It is short enough that a call which waits for
	// that room is answered within the 60 s that E2B's SDKs wait.
	farewell = 20 * time.Second
	// maxUnread bounds the clients that have taken nothing from one look to the next, each of
	// which keeps some 200 KiB of memory and socket. Those beyond it are cut at once.
	maxUnread = 256
)

// unread cuts clients that do not read what a process writes, which would hold up the process
// and all others that read it. A client is slow, and is waited for, as long as its end of the
// connection takes a byte now and then: the kernel says which bytes it has acknowledged.
//
//	reading ─no byte from one look to the next─▶ waiting ─no byte for limit, or too many wait─▶ cut: detached
//	   ▲                                            │                                           │ farewell
//	   └────────── a byte, or all was sent ─────────┘                                           ▼
//	                                                              it has read the error, or its connection is closed
type unread struct {
	limit      time.Duration
	connection func(context.Context) net.Conn // may be nil
	waiting    atomic.Int32
}

// watch returns write, watched: it calls cut, at most once, if the client of the request does not read.
func (u *unread) watch(ctx context.Context, write func(*processpb.ProcessEvent) error, cut func()) func(*processpb.ProcessEvent) error {
	if u.connection == nil {
		return write
	}
	conn, ok := u.connection(ctx).(*net.TCPConn)
	if !ok {
		return write
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return write
	}
	w := &unreadWatch{unread: u, conn: conn, raw: raw, cut: cut}
	w.timer = time.AfterFunc(u.limit, w.look)
	w.timer.Stop()
	return func(event *processpb.ProcessEvent) error {
		w.begin()
		defer w.end()
		return write(event)
	}
}

// unreadWatch is the watch of one client.
type unreadWatch struct {
	*unread
	conn  *net.TCPConn
	raw   syscall.RawConn
	cut   func()
	timer *time.Timer // calls look

	mu      sync.Mutex // guards all below
	sending bool
	waits   bool // counted in unread.waiting
	taken   uint64
	since   time.Time // when taken was seen to change, or the write began
}

func (w *unreadWatch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sending, w.since = true, time.Now()
	w.timer.Reset(w.limit / looks)
}

func (w *unreadWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sending = false
	w.timer.Stop()
	w.wait(false)
}

// wait counts the client among those that wait, or no more. Call it with mu held.
func (w *unreadWatch) wait(waits bool) {
	switch {
	case waits && !w.waits:
		w.waiting.Add(1)
	case !waits && w.waits:
		w.waiting.Add(-1)
	}
	w.waits = waits
}

// look looks at the connection of a write that is under way.
func (w *unreadWatch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.sending {
		return
	}
	now, taken := time.Now(), acknowledged(w.raw)
	w.wait(taken == w.taken)
	if taken != w.taken {
		w.taken, w.since = taken, now
	}
	leave := farewell
	switch {
	case w.waits && w.waiting.Load() > maxUnread:
		leave = 0
	case now.Sub(w.since) < w.limit:
		w.timer.Reset(w.limit / looks)
		return
	}
	w.cut()
	_ = w.conn.SetWriteDeadline(now.Add(leave)) // it fails if the connection is closed already
}

// acknowledged returns how many bytes the other end of a connection has taken; 0 where the
// kernel does not count them.
func acknowledged(raw syscall.RawConn) (bytes uint64) {
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			bytes = info.Bytes_acked
		}
	})
	return bytes
}

func errUnread(limit time.Duration) error {
	return connect.NewError(connect.CodeAborted, fmt.Errorf(
		"this client was cut off because it had not read the process's output for %s; the process goes on: connect to its pid again", limit))
}
