package relay

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
)

// sink takes connections, reads all of each, and answers with a byte.
func sink(b *testing.B) *net.TCPListener {
	listener := listen(b)
	go func() {
		for {
			conn, err := listener.AcceptTCP()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, conn)
				_, _ = conn.Write([]byte{1})
				_ = conn.Close()
			}()
		}
	}()
	return listener
}

func listen(b *testing.B) *net.TCPListener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = listener.Close() })
	return listener.(*net.TCPListener)
}

// BenchmarkPass sends 64 MiB through a relayed port, and straight to its server.
func BenchmarkPass(b *testing.B) {
	piece := make([]byte, 1<<20)
	server := sink(b)
	var serving sync.WaitGroup
	e := &entrance{listener: listen(b), lost: make(chan struct{}, 1), serving: &serving}
	servers := []netip.AddrPort{server.Addr().(*net.TCPAddr).AddrPort()}
	e.servers.Store(&servers)
	ctx, cancel := context.WithCancel(b.Context())
	serving.Go(func() { e.serve(ctx) })
	for _, c := range []struct {
		name string
		to   net.Addr
	}{{"straight", server.Addr()}, {"relayed", e.listener.Addr()}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(64 << 20)
			for b.Loop() {
				conn, err := net.Dial("tcp", c.to.String())
				if err != nil {
					b.Fatal(err)
				}
				for range 64 {
					if _, err := conn.Write(piece); err != nil {
						b.Fatal(err)
					}
				}
				_ = conn.(*net.TCPConn).CloseWrite()
				if n, err := io.Copy(io.Discard, conn); n != 1 || err != nil {
					b.Fatalf("%d bytes, %v", n, err)
				}
				_ = conn.Close()
			}
		})
	}
	cancel()
	_ = e.listener.Close()
	serving.Wait()
}

// BenchmarkScan is one look at what listens, and the one of a container that may not ask
// the kernel.
func BenchmarkScan(b *testing.B) {
	for name, look := range map[string]func() ([]netip.AddrPort, error){"diag": diag, "files": files} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := look(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
