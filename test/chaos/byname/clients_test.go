package byname

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// patience bounds each step of a client: where a process stands still it gives up.
const patience = 3 * time.Second

// sandboxClient is what runs in a sandbox: programs that connect to hosts by name.
type sandboxClient struct {
	w     *world
	addr  netip.Addr
	claim string
}

// run connects again and again until the context ends: to the host with a rule and
// to the one without. That it is refused, or a connection breaks, is no fault.
func (c *sandboxClient) run(ctx context.Context) {
	var running sync.WaitGroup
	for _, host := range []string{ruledHost, ruledHost, plainHost} {
		running.Go(func() {
			for ctx.Err() == nil {
				c.ask(ctx, host)
			}
		})
	}
	running.Wait()
}

// open connects to one of the processes as the sandbox does.
func (c *sandboxClient) open(ctx context.Context) (net.Conn, error) {
	to := c.w.processes[rand.IntN(len(c.w.processes))].addr
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.addr, 0)), Timeout: patience}
	return d.DialContext(ctx, "tcp4", netip.AddrPortFrom(to, 443).String())
}

// secure makes a connection one to the host.
func (c *sandboxClient) secure(ctx context.Context, raw net.Conn, host string) (*tls.Conn, error) {
	_ = raw.SetDeadline(time.Now().Add(patience))
	conn := tls.Client(raw, &tls.Config{ServerName: host, RootCAs: c.w.trust, NextProtos: []string{"http/1.1"}})
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	c.w.connections.Add(1)
	return conn, nil
}

// ask makes up to three requests by one connection.
func (c *sandboxClient) ask(ctx context.Context, host string) {
	raw, err := c.open(ctx)
	if err != nil {
		c.rest(ctx)
		return
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	conn, err := c.secure(ctx, raw, host)
	if err != nil {
		c.rest(ctx)
		return
	}
	for range 1 + rand.IntN(3) {
		if c.request(conn, host, "/") != nil {
			return
		}
		var b [512]byte
		if _, err := conn.Read(b[:]); err != nil {
			return
		}
	}
}

// rest lets a client that was refused not turn into a storm of its own.
func (c *sandboxClient) rest(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}

func (c *sandboxClient) request(conn io.Writer, host, path string) error {
	body := "Content-Length: 0"
	if path == "/stream" {
		body = "Transfer-Encoding: chunked"
	}
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\n%s: %s\r\n%s: %d\r\n%s\r\n\r\n",
		path, host, headerClaim, c.claim, headerSent, time.Now().UnixNano(), body)
	return err
}

// stream sends the time every 20 ms until the connection breaks or the context ends.
func (c *sandboxClient) stream(ctx context.Context, host string) {
	raw, err := c.open(ctx)
	if err != nil {
		return
	}
	defer raw.Close()
	conn, err := c.secure(ctx, raw, host)
	if err != nil || c.request(conn, host, "/stream") != nil {
		return
	}
	_ = raw.SetDeadline(time.Time{})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	go func() { _, _ = io.Copy(io.Discard, conn) }() // it ends with the connection
	for {
		chunk := binary.BigEndian.AppendUint64([]byte("8\r\n"), uint64(time.Now().UnixNano()))
		if _, err := conn.Write(append(chunk, "\r\n"...)); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// late opens a connection now and asks by it when told to: the last connection of a sandbox
// that is over by then, at an address that is another's. The judge says if it was served.
func (c *sandboxClient) late(ctx context.Context, now <-chan struct{}) {
	raw, err := c.open(ctx)
	if err != nil {
		return
	}
	defer raw.Close()
	select {
	case <-now:
	case <-ctx.Done():
		return
	}
	conn, err := c.secure(ctx, raw, ruledHost)
	if err == nil && c.request(conn, ruledHost, "/") == nil {
		_, _ = conn.Read(make([]byte, 1))
	}
}
