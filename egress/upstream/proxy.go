package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// maxAnswer bounds the head of a proxy's answer.
const maxAnswer = 16 << 10

// connect connects to the address, by the operator's proxy if there is one.
func (d *Dialer) connect(ctx context.Context, host string, to netip.AddrPort) (net.Conn, error) {
	if !d.Proxy.IsValid() || len(d.Own[host]) > 0 {
		return (&net.Dialer{}).DialContext(ctx, "tcp4", to.String())
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp4", d.Proxy.String())
	if err != nil {
		return nil, fmt.Errorf("by the proxy: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	err = tunnel(c, to)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("by the proxy: %w", err)
	}
	return c, nil
}

// tunnel has a proxy connect to the address. It reads nothing behind the proxy's answer, so
// that what follows is the host's.
func tunnel(c net.Conn, to netip.AddrPort) error {
	if _, err := fmt.Fprintf(c, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", to); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReaderSize(&io.LimitedReader{R: oneByOne{c}, N: maxAnswer}, 1), &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // its body is the host's, and would be read
	if err != nil {
		return err
	}
	if answer.StatusCode/100 != 2 { // RFC 9110, 9.3.6: any of these opens the tunnel
		return errors.New("it answers " + answer.Status)
	}
	return nil
}

// oneByOne gives a reader's bytes one at a time, so that a buffer takes no more of them than
// are asked for.
type oneByOne struct{ io.Reader }

// Read implements io.Reader.
func (r oneByOne) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(1, len(p))]) }
