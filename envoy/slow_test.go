package envoy

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/sandlane/sandlane/kubeclient/backoff"
)

// allocated is the memory that Envoy has in use, as its heap monitor counts it.
func (w *world) allocated(t *testing.T) int64 {
	t.Helper()
	out, err := w.admin.do(t.Context(), http.MethodGet, "/memory")
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Allocated int64 `json:"allocated,string"`
	}
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		t.Fatal(err)
	}
	return m.Allocated
}

// slowWindow is what a client of slowStreams takes of an answer that is not read. It
// is small, so that the memory which fills up is Envoy's and not this process's.
const slowWindow = 64 << 10

// Clients that read nothing of what they asked for, as many as may have requests
// open, fit the memory that Envoy has for them, so it goes on taking requests.
func TestSlowReadersFitTheHeap(t *testing.T) {
	for name, send := range map[string]func(t *testing.T, w *world, n int){
		"HTTP/1 downloads": func(t *testing.T, w *world, n int) {
			connect(t, w, n, func(c net.Conn) {
				_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
				_, _ = io.WriteString(c, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
			})
		},
		"h2c downloads": func(t *testing.T, w *world, n int) { slowStreams(t, w, n, "/big", nil) },
		"h2c uploads":   func(t *testing.T, w *world, n int) { slowStreams(t, w, n, "/deaf", zeros{}) },
	} {
		t.Run(name, func(t *testing.T) {
			const slow = 300
			w := startWorld(t, Options{MaxStreams: slow + 20, MessageTimeout: burstTimeout}, true)
			quiet := make(chan struct{})
			pod := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/big":
					_, _ = io.Copy(rw, zeros{})
				case "/deaf":
					<-quiet
				}
			}))
			defer pod.Close()
			defer pod.CloseClientConnections()
			defer close(quiet)
			w.gateway.answer = func(string) *extprocv3.ProcessingResponse { return to(pod.Listener.Addr().String()) }
			before := w.allocated(t)
			send(t, w, slow)
			ctx, cancel := context.WithTimeout(t.Context(), burstTimeout)
			defer cancel()
			last, since := before, time.Now()
			for { // until all are open and the heap has stopped growing
				open, err := w.admin.open(ctx)
				now := w.allocated(t)
				if now > last+last/100 || err != nil || open.Requests < slow {
					last, since = max(now, last), time.Now()
				} else if time.Since(since) > 2*time.Second {
					break
				}
				if !backoff.Sleep(ctx, lookEvery) {
					t.Fatalf("%d of %d slow requests are open (%v), %d bytes allocated", open.Requests, slow, err, now)
				}
			}
			each := (w.allocated(t) - before) / slow
			t.Logf("%d kB for each", each>>10)
			if each > streamHeap {
				t.Errorf("a slow stream takes %d bytes, more than the %d that the heap is sized for", each, streamHeap)
			}
			if got := fetchURL(t, w.url); got != "200 " {
				t.Errorf("another request: %s", got)
			}
		})
	}
}

// slowStreams opens n streams and does not read their answers.
func slowStreams(t *testing.T, w *world, n int, path string, body io.Reader) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, n)
	t.Cleanup(func() {
		if t.Failed() && len(failed) > 0 {
			t.Logf("%d requests ended by themselves; the first: %v", len(failed), <-failed)
		}
		cancel()
	})
	for range n / 50 {
		transport := &http.Transport{Protocols: protocols, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: slowWindow}}
		t.Cleanup(transport.CloseIdleConnections)
		for range 50 {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+path, body)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				resp, err := transport.RoundTrip(req)
				if err != nil {
					failed <- err
					return
				}
				<-ctx.Done()
				_ = resp.Body.Close()
			}()
		}
	}
}
