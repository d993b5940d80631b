package envoy

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	dataaccesslogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"

	"github.com/sandlane/sandlane/extproc"
)

// What a hit is known by later is what ExtProc would have set: in the answer for a pod
// that is not reached, and in the records that the gateway gets, which drop the route of a
// pod that is gone, and note the end of a long stream as use. An error that a pod itself
// answers leaves no record.
func TestFastPathLeavesItsMetadata(t *testing.T) {
	t.Parallel()
	f := startFastWorld(t)
	_, port := f.put(t, "known")
	f.answers(t, "known", port)
	const long = longStream*time.Millisecond + 100*time.Millisecond
	open := make(chan struct{}, 1)
	pod := listenAt(t, "127.0.0.1:0")
	serveOn(t, pod, func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case podsOwnError:
			rw.Header().Set("Connection", "close") // so that no later request is repeated
			rw.WriteHeader(http.StatusNotFound)
			return
		case "/no-answer":
			panic(http.ErrAbortHandler)
		case "/upgraded":
			conn, _, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_, _ = conn.Read(make([]byte, 1))    // the client has the answer
			_ = conn.(*net.TCPConn).SetLinger(0) // a reset, as of a pod that is killed
			_ = conn.Close()
			return
		}
		_, _ = io.WriteString(rw, "a part")
		_ = http.NewResponseController(rw).Flush()
		if r.URL.Path == "/left" {
			open <- struct{}{}
			<-r.Context().Done()
			return
		}
		<-time.After(long)
		if r.URL.Path == "/breaks-off" {
			panic(http.ErrAbortHandler)
		}
	})
	_, at, _ := strings.Cut(pod.Addr().String(), ":")
	ask := func(port, path string) (*http.Response, string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Sandbox-Id", "known")
		req.Header.Set("X-Sandbox-Port", port)
		if path == "/upgraded" {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "websocket")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		// Not http.Client's Timeout: it hides the connection of an upgraded request.
		limit := time.AfterFunc(burstTimeout, func() { _ = resp.Body.Close() })
		defer limit.Stop()
		if path == "/left" {
			<-open
			<-time.After(long)
			return resp, "", resp.Body.Close()
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			if _, err := resp.Body.(io.Writer).Write([]byte("x")); err != nil {
				t.Error(err)
			}
		}
		body, err := io.ReadAll(resp.Body)
		return resp, string(body), errors.Join(err, resp.Body.Close())
	}
	if resp, _, err := ask(at, podsOwnError); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("an error that a pod answers: %v, %v", resp, err)
	}
	for _, tc := range []struct {
		path, port string
		flagged    func(*dataaccesslogv3.ResponseFlags) bool
	}{
		{"/closed", strconv.Itoa(freePort(t)), (*dataaccesslogv3.ResponseFlags).GetUpstreamConnectionFailure},
		{"/no-answer", at, func(flags *dataaccesslogv3.ResponseFlags) bool { return flags == nil }},
		{"/upgraded", at, (*dataaccesslogv3.ResponseFlags).GetUpstreamConnectionTermination},
		{"/breaks-off", at, (*dataaccesslogv3.ResponseFlags).GetUpstreamProtocolError},
		{"/long", at, func(flags *dataaccesslogv3.ResponseFlags) bool { return flags == nil }},
		{"/left", at, (*dataaccesslogv3.ResponseFlags).GetDownstreamConnectionTermination},
	} {
		resp, body, err := ask(tc.port, tc.path)
		if tc.path == "/closed" || tc.path == "/no-answer" {
			if want := `"port":` + tc.port; resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, want) || !strings.Contains(body, `"sandboxId":"known"`) {
				t.Errorf("%s: %d %s, want 502 with %s", tc.path, resp.StatusCode, body, want)
			}
		} else if tc.path == "/upgraded" {
			if resp.StatusCode != http.StatusSwitchingProtocols {
				t.Errorf("an upgrade: %d, %v", resp.StatusCode, err)
			}
		} else if broke := err != nil; resp.StatusCode != http.StatusOK || broke != (tc.path == "/breaks-off") {
			t.Errorf("%s: %d, %v", tc.path, resp.StatusCode, err)
		}
		entry := f.record(t, tc.path)
		number, _ := strconv.Atoi(tc.port)
		want := map[string]any{extproc.MetadataSandboxID: "known", extproc.MetadataPort: float64(number), "pod_uid": "uid", "claim": "claim"}
		if tc.path == "/no-answer" { // over a connection of its own, so not repeated
			want[extproc.MetadataBroken] = 1.0
		}
		if got := entry.GetMetadata().GetFilterMetadata()[extproc.MetadataNamespace].AsMap(); !maps.Equal(got, want) {
			t.Errorf("%s: the access log has %v, want %v", tc.path, got, want)
		}
		if !tc.flagged(entry.GetResponseFlags()) {
			t.Errorf("%s: the access log's flags are %v", tc.path, entry.GetResponseFlags())
		}
	}
}

// podsOwnError is the path of a request whose error a pod answers.
const podsOwnError = "/not-found"

// record returns the record of a request for this path, and fails the test at one of
// podsOwnError: an Envoy sends its records within a second.
func (f *fastWorld) record(t *testing.T, path string) *dataaccesslogv3.AccessLogCommon {
	t.Helper()
	for end := time.After(20 * time.Second); ; {
		select {
		case m := <-f.gateway.logs:
			for _, entry := range m.GetHttpLogs().GetLogEntry() {
				if entry.GetRequest().GetPath() == podsOwnError {
					t.Error("a record of an error that a pod answered")
				}
				if entry.GetRequest().GetPath() == path {
					return entry.GetCommonProperties()
				}
			}
		case <-end:
			t.Fatalf("no record of the request for %s", path)
		}
	}
}

// Each request of a connection goes to the sandbox that it names, also those that are
// open at once: the address that the module sets is the request's.
func TestFastPathOnOneConnection(t *testing.T) {
	t.Parallel()
	f := startFastWorld(t)
	_, port := f.put(t, "known")
	f.answers(t, "known", port)
	ports := map[string]string{}
	for id, at := range map[string]string{"first": "127.0.0.1", "second": "127.0.0.2", "third": "::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(at, "0"))
		if err != nil && id == "third" {
			t.Logf("without IPv6: %v", err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		serveOn(t, l, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, id) })
		f.putAt(t, id, netip.MustParseAddr(at))
		_, ports[id], _ = net.SplitHostPort(l.Addr().String())
	}
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		var protocols http.Protocols
		protocols.SetHTTP1(!h2)
		protocols.SetUnencryptedHTTP2(h2)
		transport := &http.Transport{Protocols: &protocols, MaxConnsPerHost: 1}
		client := &http.Client{Transport: transport, Timeout: burstTimeout}
		var all sync.WaitGroup
		for range 50 {
			for id, port := range ports {
				all.Go(func() {
					req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url, nil)
					req.Header.Set("X-Sandbox-Id", id)
					req.Header.Set("X-Sandbox-Port", port)
					resp, err := client.Do(req)
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					body, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if err != nil || resp.StatusCode != http.StatusOK || string(body) != id {
						t.Errorf("%s: sandbox %s: %d %q, %v", name, id, resp.StatusCode, body, err)
					}
				})
			}
		}
		all.Wait()
		transport.CloseIdleConnections()
	}
}
