package envoy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Envoy takes one request of a connection on in each turn of its event loop, and picks
// the routes of those behind it before that. One that it found in the table, but did not
// yet send anywhere, does not reach the address after the route was fenced.
func TestFastPathLooksAgainAtLateRequests(t *testing.T) {
	t.Parallel()
	f := startFastWorld(t)
	r, port := f.put(t, "known")
	f.answers(t, "known", port)
	at := f.pod.Listener.Addr().String()
	f.pod.Close()

	// The pod's requests stay open, so that each has a connection of its own. The first
	// stops Envoy.
	var stop sync.Once
	stopped, proceed := make(chan struct{}), make(chan struct{})
	pod := listenAt(t, at)
	serveOn(t, pod, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/accepted" {
			return
		}
		stop.Do(func() {
			_ = f.cmd.Process.Signal(syscall.SIGSTOP)
			close(stopped)
		})
		<-proceed
	})
	client := dialH2(t, strings.TrimPrefix(f.url, "http://"))
	client.ask(t, h2Streams, ":method", "GET", ":scheme", "http", ":path", "/", ":authority", "localhost", "x-sandbox-id", "known", "x-sandbox-port", port)
	<-stopped
	t.Cleanup(func() { _ = f.cmd.Process.Signal(syscall.SIGCONT) })
	f.cache.Drop(r)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := f.table.Wait(ctx)
	if errors.Is(err, context.DeadlineExceeded) { // it was stopped while it read the table
		_ = f.cmd.Process.Signal(syscall.SIGCONT)
		err = f.table.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	// Connections are accepted in their order: those that Envoy made are the pod's now.
	resp, err := http.Get("http://" + at + "/accepted")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	// The address becomes another sandbox's.
	_ = pod.Close()
	var wrong atomic.Int64
	serveOn(t, listenAt(t, at), func(http.ResponseWriter, *http.Request) { wrong.Add(1) })
	_ = f.cmd.Process.Signal(syscall.SIGCONT)
	close(proceed)
	statuses := client.statuses(t, h2Streams)
	// Envoy may have been stopped between the answer and the connection of one; the time
	// for which an address cools down is for that.
	if n := wrong.Load(); n > 1 {
		t.Errorf("%d requests reached the address after the fence", n)
	}
	if statuses["503"] == 0 {
		t.Errorf("Envoy had sent all requests on before it was stopped: %v", statuses)
	}
}

func listenAt(t *testing.T, at string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func serveOn(t *testing.T, l net.Listener, handle http.HandlerFunc) {
	t.Helper()
	s := &http.Server{Handler: handle, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
}

// h2Client sends requests of one connection in one piece.
type h2Client struct {
	net.Conn
	framer *http2.Framer
}

func dialH2(t *testing.T, at string) *h2Client {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(burstTimeout))
	return &h2Client{Conn: c, framer: http2.NewFramer(c, c)}
}

func (c *h2Client) ask(t *testing.T, n int, fields ...string) {
	t.Helper()
	var all, block bytes.Buffer
	all.WriteString(http2.ClientPreface)
	framer, encoder := http2.NewFramer(&all, nil), hpack.NewEncoder(&block)
	err := framer.WriteSettings()
	for i := range n {
		block.Reset()
		for k := 0; k < len(fields); k += 2 {
			err = errors.Join(err, encoder.WriteField(hpack.HeaderField{Name: fields[k], Value: fields[k+1]}))
		}
		err = errors.Join(err, framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true,
		}))
	}
	if err == nil {
		_, err = c.Write(all.Bytes())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// statuses reads until n streams are over, and counts their statuses; of a stream that
// was reset it is "reset".
func (c *h2Client) statuses(t *testing.T, n int) map[string]int {
	t.Helper()
	statuses := map[string]int{}
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for over := 0; over < n; {
		frame, err := c.framer.ReadFrame()
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("after %v: %v", statuses, err)
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = c.framer.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			statuses[f.PseudoValue("status")]++
			if f.StreamEnded() {
				over++
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				over++
			}
		case *http2.RSTStreamFrame:
			statuses["reset"]++
			over++
		case nil:
			t.Fatalf("the connection ended after %v", statuses)
		}
	}
	return statuses
}
