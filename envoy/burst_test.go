package envoy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sandlane/sandlane/extproc"
	"github.com/sandlane/sandlane/kubeclient/backoff"
)

// These tests open thousands of connections, and so do not run beside others.

// burstTimeout bounds one burst on a loaded machine.
const burstTimeout = 2 * time.Minute

// unknownSandbox is ExtProc's immediate answer for an ID that it does not know.
func unknownSandbox() *extprocv3.ProcessingResponse {
	final, err := structpb.NewStruct(map[string]any{extproc.MetadataNamespace: map[string]any{extproc.MetadataFinal: true}})
	if err != nil {
		panic(err)
	}
	return &extprocv3.ProcessingResponse{DynamicMetadata: final, Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{Status: &typev3.HttpStatus{Code: typev3.StatusCode_NotFound}, Body: []byte("unknown")},
	}}
}

// Answers to thousands of requests that reach Envoy in one piece cost no other request
// its answer: Envoy ends the gateway's stream of each with a frame, and all streams
// of a worker share one connection.
func TestBurstLosesNoParkedRequest(t *testing.T) {
	for _, tc := range []struct {
		client string
		send   func(t *testing.T, w *world, path string, n int) map[string]int
		n      int
	}{
		{"HTTP/1", burstHTTP1, 1500}, {"HTTP/1", burstHTTP1, 5000}, {"h2c", burstH2C, 1500}, {"h2c", burstH2C, 5000},
	} {
		t.Run(fmt.Sprintf("%s %d", tc.client, tc.n), func(t *testing.T) {
			const honest = 50
			w := startWorld(t, Options{MessageTimeout: burstTimeout}, true)
			w.podSaw = nil
			pod := w.gateway.answer
			release, arrived := make(chan struct{}), sync.WaitGroup{}
			var parked sync.WaitGroup
			parked.Add(honest)
			arrived.Add(tc.n)
			w.gateway.answer = func(path string) *extprocv3.ProcessingResponse {
				if path == "/parked" {
					parked.Done()
					<-release
					return pod("") // with the time of now
				}
				arrived.Done()
				arrived.Wait() // all are answered at once
				return unknownSandbox()
			}
			served := make(chan map[string]int)
			go func() { served <- burstHTTP1(t, w, "/parked", honest) }()
			parked.Wait()
			wantAll(t, "requests for unknown sandboxes", tc.send(t, w, "/unknown", tc.n), "404 unknown", tc.n)
			close(release)
			wantAll(t, "parked requests", <-served, "200 from the pod", honest)
		})
	}
}

// Requests that wait for one sandbox are all served once it is there: as many as Envoy connects
// within MaxAge. With SANDLANE_STORM=full they are the chart's maxStreams.
func TestBurstOnOneSandbox(t *testing.T) {
	n := 1000
	if os.Getenv("SANDLANE_STORM") == "full" {
		n = 2500
	}
	w := startWorld(t, Options{MessageTimeout: burstTimeout}, true)
	w.podSaw = nil
	pod := w.gateway.answer
	var parked sync.WaitGroup
	parked.Add(n)
	w.gateway.answer = func(string) *extprocv3.ProcessingResponse {
		parked.Done()
		parked.Wait()
		return pod("") // with the time of now
	}
	wantAll(t, "parked requests", burstHTTP1(t, w, "/", n), "200 from the pod", n)
}

// A gateway that reads nothing for a while, since its machine is busy, loses no
// request for all that Envoy has for it meanwhile.
func TestBurstWhileTheGatewayDoesNotRead(t *testing.T) {
	const n = 5200 // with two frames each, headers and a message
	w := startWorld(t, Options{MessageTimeout: burstTimeout}, false)
	l, err := net.Listen("unix", filepath.Join(w.dir, ExtProcSocketName))
	if err != nil {
		t.Fatal(err)
	}
	stall := &stallingListener{Listener: l}
	w.serveGatewayOn(t, stall)
	w.gateway.answer = func(string) *extprocv3.ProcessingResponse { return unknownSandbox() }
	wantAll(t, "requests before", burstHTTP1(t, w, "/", 1), "404 unknown", 1) // they are connected now
	stall.reading.Lock()
	done := make(chan map[string]int)
	go func() { done <- burstHTTP1(t, w, "/", n) }()
	ctx, cancel := context.WithTimeout(t.Context(), burstTimeout)
	defer cancel()
	for {
		// A busy Envoy that does not say so in time is asked again.
		if seen, err := w.admin.stats(ctx, "http.main.downstream_rq_total"); err == nil && seen[0] > n || !backoff.Sleep(ctx, lookEvery) {
			break
		}
	}
	stall.reading.Unlock()
	wantAll(t, "requests", <-done, "404 unknown", n)
}

// stallingListener's connections read nothing while reading is locked.
type stallingListener struct {
	net.Listener
	reading sync.RWMutex
}

func (l *stallingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return stallingConn{c, l}, err
}

type stallingConn struct {
	net.Conn
	l *stallingListener
}

func (c stallingConn) Read(b []byte) (int, error) {
	c.l.reading.RLock()
	c.l.reading.RUnlock() //nolint:staticcheck // it only waits
	return c.Conn.Read(b)
}

// burstHTTP1 sends n requests at once, each on a connection of its own, and counts
// the answers by status and body.
func burstHTTP1(t *testing.T, w *world, path string, n int) map[string]int {
	return burst(n, func(int) string {
		c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			return err.Error()
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(burstTimeout))
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
			return err.Error()
		}
		return answerOf(http.ReadResponse(bufio.NewReader(c), nil))
	})
}

// burstH2C sends n requests at once as streams of a few connections.
func burstH2C(t *testing.T, w *world, path string, n int) map[string]int {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	clients := make([]*http.Client, (n+h2Streams-1)/h2Streams)
	for i := range clients {
		transport := &http.Transport{Protocols: protocols}
		t.Cleanup(transport.CloseIdleConnections)
		clients[i] = &http.Client{Transport: transport, Timeout: burstTimeout}
	}
	return burst(n, func(i int) string {
		return answerOf(clients[i/h2Streams].Get(w.url + path))
	})
}

func burst(n int, send func(i int) string) map[string]int {
	answers := make(chan string, n)
	for i := range n {
		go func() { answers <- send(i) }()
	}
	counts := map[string]int{}
	for range n {
		counts[<-answers]++
	}
	return counts
}

func answerOf(resp *http.Response, err error) string {
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(resp.StatusCode, " ", string(body))
}

func wantAll(t *testing.T, what string, got map[string]int, want string, n int) {
	t.Helper()
	if got[want] != n || len(got) != 1 {
		t.Errorf("%s: %v, want %d × %q", what, got, n, want)
	}
}
