// Package upstream is the server in all sandboxes of the benchmarks: Listen and Serve answer
// any HTTP/1.1 request without a body at once, with a few bytes. It uses as little CPU as Go
// allows, since it shares the cores with the processes under test, and is of no use as a
// general HTTP server. bench runs it in a process of its own.
package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

var (
	answer    = []byte("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 6\r\n\r\nhello\n")
	endOfHead = []byte("\r\n\r\n")
)

// Listen listens on a port of every loopback address, and of no other, so that one server
// is the sandbox behind thousands of addresses.
func Listen(ctx context.Context, port int) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		bind := func(fd uintptr) { err = unix.BindToDevice(int(fd), "lo") }
		return errors.Join(c.Control(bind), err)
	}}
	l, err := config.Listen(ctx, "tcp4", fmt.Sprintf("0.0.0.0:%d", port))
	if err != nil {
		return nil, fmt.Errorf("listen for the sandboxes' requests: %w", err)
	}
	return l, nil
}

// Serve answers until the listener is closed.
func Serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a connection: %w", err)
		}
		go serve(c)
	}
}

// serve answers each request head that arrives. Requests do not overlap, since Envoy does not
// pipeline.
func serve(c net.Conn) {
	defer c.Close()
	buf, n := make([]byte, 16<<10), 0
	for {
		m, err := c.Read(buf[n:])
		if n += m; err != nil || n == len(buf) {
			if err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 431 Too Large\r\ncontent-length: 0\r\n\r\n")
			}
			return
		}
		if !bytes.HasSuffix(buf[:n], endOfHead) {
			continue
		}
		n = 0
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}
