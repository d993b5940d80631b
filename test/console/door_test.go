package console

import (
	"io"
	"net"
	"sync"
	"testing"
)

// door leads to an API server, and can be shut.
type door struct {
	address, to string

	mu       sync.Mutex
	listener net.Listener
	conns    []net.Conn
	work     sync.WaitGroup
}

func newDoor(t *testing.T, to string) *door {
	t.Helper()
	d := &door{address: "127.0.0.1:0", to: to}
	d.open(t)
	d.address = d.listener.Addr().String()
	t.Cleanup(func() { d.shut(); d.work.Wait() })
	return d
}

func (d *door) open(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", d.address)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.listener = l
	d.mu.Unlock()
	d.work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			d.work.Go(func() { d.relay(in) })
		}
	})
}

func (d *door) relay(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", d.to)
	if err != nil {
		return
	}
	defer out.Close()
	d.mu.Lock()
	d.conns = append(d.conns, in, out)
	d.mu.Unlock()
	d.work.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
	_, _ = io.Copy(in, out)
}

// shut refuses and cuts all connections.
func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.listener.Close()
	for _, c := range d.conns {
		_ = c.Close()
	}
	d.conns = nil
}
