package envoy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// breakingPod answers requests, and ends connections instead as breaks says.
type breakingPod struct {
	breaks           breaks
	requests, broken atomic.Int64 // requests that it got, and that it broke off
	told             atomic.Bool  // it got attemptHeader
}

type breaks struct {
	// new is whether the pod breaks a connection's first request off, else its second one.
	new bool
	// after is for how long the pod waits before, text what it writes.
	after time.Duration
	text  string
	// on is whether it breaks all requests off from then on; else it answers them.
	on bool
}

func (p *breakingPod) serve(_ int, c net.Conn, r *bufio.Reader) {
	for number := 0; ; number++ {
		head := readHead(r)
		if head == "" {
			return
		}
		if !strings.Contains(head, " HTTP/1.1\r\n") { // chunks
			continue
		}
		p.requests.Add(1)
		if strings.Contains(head, attemptHeader) {
			p.told.Store(true)
		}
		if p.breaks.on && p.broken.Load() > 0 || p.broken.Load() == 0 && (number > 0 || p.breaks.new) {
			p.broken.Add(1)
			<-time.After(p.breaks.after)
			_, _ = io.WriteString(c, p.breaks.text)
			return
		}
		if _, err := io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n"); err != nil {
			return
		}
	}
}

// A request is sent to a sandbox twice only if it has no body and a method that allows it, and
// met a kept connection that was being closed, got no byte of an answer, and is repeated
// within RepeatAge; and never three times.
func TestRepeats(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		method, body string
		http2        bool
		header       []string
		breaks       breaks
		want         int
		requests     int64 // that the pod gets
	}{
		"GET":                     {method: "GET", want: 204, requests: 2},
		"HEAD":                    {method: "HEAD", want: 204, requests: 2},
		"HTTP/2":                  {method: "GET", http2: true, want: 204, requests: 2},
		"POST":                    {method: "POST", want: 502, requests: 1},
		"DELETE":                  {method: "DELETE", want: 502, requests: 1},
		"a body":                  {method: "GET", body: "a", want: 502, requests: 1},
		"a body without a length": {method: "GET", body: "a", http2: true, want: 502, requests: 1},
		"an upgrade":              {method: "GET", header: []string{"Connection", "Upgrade", "Upgrade", "websocket"}, want: 502, requests: 1},
		"a byte of an answer":     {method: "GET", breaks: breaks{text: "H"}, want: 502, requests: 1},
		"no HTTP":                 {method: "GET", breaks: breaks{text: "SSH-2.0-OpenSSH\r\n"}, want: 502, requests: 1},
		"late":                    {method: "GET", breaks: breaks{after: RepeatAge + 100*time.Millisecond}, want: 502, requests: 1},
		"a new connection":        {method: "GET", breaks: breaks{new: true}, want: 502, requests: 1},
		"twice":                   {method: "GET", breaks: breaks{on: true}, want: 502, requests: 2},
	}
	for mode, start := range map[string]func(*testing.T) (w *world, aim func(netip.AddrPort) (headers []string)){
		"script": func(t *testing.T) (*world, func(netip.AddrPort) []string) {
			w := startWorld(t, Options{}, true)
			return w, w.aim
		},
		"module": func(t *testing.T) (*world, func(netip.AddrPort) []string) {
			w := startFastWorld(t).world
			return w, w.aim
		},
		"hit": func(t *testing.T) (*world, func(netip.AddrPort) []string) {
			f := startFastWorld(t)
			_, port := f.put(t, "known")
			f.answers(t, "known", port)
			return f.world, func(at netip.AddrPort) []string {
				return []string{"X-Sandbox-Id", "known", "X-Sandbox-Port", strconv.Itoa(int(at.Port()))}
			}
		},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w, aim := start(t)
			for name, tc := range cases {
				p := &breakingPod{breaks: tc.breaks}
				headers := aim(rawPod(t, p.serve))
				if !tc.breaks.new {
					if status, body := w.send(t, "GET", "", false, headers...); status != 204 {
						t.Fatalf("%s: the first request: %d %q", name, status, body)
					}
				}
				var status int
				var body string
				var before int64
				for p.broken.Load() == 0 { // once, unless Envoy has not put the connection back so soon
					before = p.requests.Load()
					status, body = w.send(t, tc.method, tc.body, tc.http2, append(headers, tc.header...)...)
				}
				if status != tc.want || status == 502 && !strings.Contains(body, noHTTPMessage) {
					t.Errorf("%s: %d %q, want %d", name, status, body, tc.want)
				}
				if p.told.Load() {
					t.Errorf("%s: the pod got %s", name, attemptHeader)
				}
				if got := p.requests.Load() - before; got != tc.requests {
					t.Errorf("%s: the pod got %d requests, want %d", name, got, tc.requests)
				}
			}
		})
	}
}

// aim lets ExtProc send all requests to an address.
func (w *world) aim(at netip.AddrPort) []string {
	w.gateway.answer = func(string) *extprocv3.ProcessingResponse { return to(at.String()) }
	return nil
}

// send sends a request, with HTTP/2 without saying how long its body is.
func (w *world) send(t *testing.T, method, body string, http2 bool, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	if http2 && body != "" {
		req.ContentLength = -1
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(got)
}
