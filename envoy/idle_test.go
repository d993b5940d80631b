package envoy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// A connection that has had its request, and has no other, does not take the place of
// another client's for longer than the idle timeout; one with an open request stays.
func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	const streams, timeout = 20, time.Second
	w := startWorld(t, Options{MaxStreams: streams, ConnectionIdleTimeout: timeout}, true)
	w.podSaw = nil
	open := connect(t, w, 1, func(c net.Conn) { _, _ = io.WriteString(c, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n") })[0]
	head := bufio.NewReader(open)
	if resp, err := http.ReadResponse(head, nil); err != nil || resp.StatusCode != 200 {
		t.Fatalf("a request that stays open: %v, %v", resp, err)
	}
	began := time.Now()
	idle := connect(t, w, streams-1, func(c net.Conn) {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("a first request: %v, %v", resp, err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	})
	for _, c := range idle {
		wantClosed(t, c)
	}
	if took := time.Since(began); took < timeout {
		t.Errorf("closed after %v", took)
	}
	if got := fetchURL(t, w.url); got != "200 from the pod" {
		t.Errorf("afterwards: %s", got)
	}
	_ = open.SetReadDeadline(time.Now().Add(timeout))
	if _, err := head.ReadByte(); !isTimeout(err) {
		t.Errorf("the connection with an open request: %v", err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// A client that keeps its connections for longer than Envoy does, as E2B's SDK for
// Python does, meets closed ones and notices nothing, with HTTP/1 and HTTP/2.
func TestClientsOutliveTheIdleTimeout(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t)
	for name, o := range map[string]Options{"HTTP/1": {}, "HTTP/2": {CertFile: cert, KeyFile: key}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.ConnectionIdleTimeout = time.Second
			w := startWorld(t, o, true)
			w.podSaw = nil
			url := w.url
			transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: insecure()}
			transport.TLSClientConfig.NextProtos = nil
			closed := make(chan struct{}, 10) // more than there are connections
			transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return &closeReporter{Conn: c, closed: closed}, nil
			}
			if o.CertFile != "" {
				url = "https" + url[len("http"):]
			}
			t.Cleanup(transport.CloseIdleConnections)
			client := &http.Client{Transport: transport, Timeout: 20 * time.Second}
			for range 2 {
				// POST: a client repeats it only where it knows that it was not sent.
				if got := answerOf(client.Post(url, "text/plain", nil)); got != "200 from the pod" {
					t.Errorf("a request: %s", got)
				}
				// A client that has not seen yet that its connection is closed would use it.
				select {
				case <-closed:
				case <-time.After(20 * time.Second):
					t.Fatal("the connection was not closed")
				}
			}
		})
	}
}

// closeReporter is a connection that sends on closed when its client closes it, once.
type closeReporter struct {
	net.Conn
	once   sync.Once
	closed chan<- struct{}
}

func (c *closeReporter) Close() error {
	c.once.Do(func() { c.closed <- struct{}{} })
	return c.Conn.Close()
}
