package claims

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Door accepts the connections of one listener, in the order in which they came, and knows
// when those have been accepted that were there at a moment.
type Door struct {
	l net.Listener
	t *Table

	mu sync.Mutex
	// marks are the connections that Pass makes, by their end, from before they are made
	// until Accept has seen them.
	marks map[netip.AddrPort]chan struct{}
}

// NewDoor returns a door to a TCP listener at an IPv4 address; its arrivals are the table's.
func NewDoor(l net.Listener, t *Table) *Door {
	return &Door{l: l, t: t, marks: map[netip.AddrPort]chan struct{}{}}
}

// Accept returns the next connection of somebody else, with its arrival. One goroutine
// calls it.
func (d *Door) Accept() (net.Conn, Arrival, error) {
	for {
		c, err := d.l.Accept()
		if err != nil {
			return nil, Arrival{}, fmt.Errorf("accept a connection: %w", err)
		}
		from := endOf(c.RemoteAddr())
		if from.Addr() == endOf(c.LocalAddr()).Addr() && d.took(from) {
			_ = c.Close()
			continue
		}
		return c, d.t.Arrive(from.Addr()), nil
	}
}

// took reports whether a connection is one of Pass's, and tells it.
func (d *Door) took(from netip.AddrPort) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	mark, ok := d.marks[from]
	if ok {
		close(mark)
		delete(d.marks, from)
	}
	return ok
}

// Pass returns nil once Accept has returned every connection that stood in the kernel's
// queue when Pass was called, and their arrivals were noted. It connects to the listener:
// the queue is first in, first out.
func (d *Door) Pass(ctx context.Context) error {
	to := endOf(d.l.Addr())
	if to.Addr().IsUnspecified() {
		to = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), to.Port())
	}
	mark := make(chan struct{})
	var from netip.AddrPort
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if failed := c.Control(func(fd uintptr) { from, err = bind(int(fd), to.Addr()) }); failed != nil {
			return failed
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.marks[from] = mark
		return err
	}}
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.marks, from)
	}()
	c, err := dialer.DialContext(ctx, "tcp4", to.String())
	if err != nil {
		return fmt.Errorf("connect to this process's own listener: %w", err)
	}
	defer func() { _ = c.Close() }()
	select {
	case <-mark:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait until all connections are accepted: %w", ctx.Err())
	}
}

// bind gives a socket an end at the address before it connects.
func bind(fd int, addr netip.Addr) (netip.AddrPort, error) {
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: addr.As4()}); err != nil {
		return netip.AddrPort{}, fmt.Errorf("bind a socket: %w", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read a socket's address: %w", err)
	}
	end := name.(*unix.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(end.Addr), uint16(end.Port)), nil
}

func endOf(a net.Addr) netip.AddrPort {
	ap := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
