package envoy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// serveAPI stands in for the REST API: it says that it answered, and what it saw.
func (w *world) serveAPI(t *testing.T, handler http.HandlerFunc) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(w.dir, APISocketName))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
}

// raw sends a request line and headers as written and returns the answer.
func (w *world) raw(t *testing.T, request string) (*http.Response, string) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	request = strings.ReplaceAll(request, "\n", "\r\n") + "\r\nConnection: close\r\n\r\n"
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// What is addressed to a sandbox goes through ExtProc, however it is written; the
// REST API's paths on its hosts do not; and nothing goes to both.
func TestAPIRoutes(t *testing.T) {
	t.Parallel()
	w := startWorld(t, Options{}, true)
	w.serveAPI(t, func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, "API "+r.RequestURI) })
	const api, extproc = true, false
	for _, tc := range []struct {
		host, path string
		header     string
		api        bool
	}{
		// The API's paths, on each of its hosts.
		{"api.example.com", "/sandboxes", "", api},
		{"API.example.com:443", "/v2/sandboxes", "", api},
		{"localhost", "/sandboxes", "", api},
		{"LocalHost:8080", "/v2/sandboxes?limit=1", "", api},
		{"127.0.0.1:8080", "/sandboxes/iabc", "", api},
		{"[::1]:8080", "/sandboxes/iabc/timeout", "", api},
		{"sandbox.example.com", "/sandboxes/iabc/connect", "", api},
		{"localhost", "/v2/sandboxes/iabc/logs", "", api},
		{"localhost", "/v2/sandboxes/iabc/8000/x", "", api},
		{"localhost", "/sandboxes/iabc/", "", api},
		{"localhost", "/sandboxes/iabc/snapshots/x", "", api},
		{"localhost", "/v3/templates", "", api},
		{"localhost", "/templates/aliases/base", "", api},
		{"localhost", "/templates/a%2Fb%3Ac", "", api},
		{"localhost", "/snapshots", "", api},
		{"localhost", "/default-templates", "", api},
		{"localhost", "/volumes/x", "", api},
		{"localhost", "/secrets", "", api},
		{"localhost", "/health", "", api},
		{"localhost.", "/sandboxes", "", api},
		{"127.0.0.1.:8080", "/sandboxes", "", api},
		{"API.Example.com.:80", "/v2/sandboxes", "", api},
		{"sandbox.example.com.", "/templates/a..b/.c/%2525?/../sandboxes/iabc/8000/%5C\\", "", api},
		// Confusing, but no sandbox's: the API checks IDs and keys itself.
		{"localhost", "/sandboxes/iabc%2F8000/", "", api},
		{"api.example.com", "/sandboxes", "E2b-Sandbox-Id: iabc\nE2b-Sandbox-Port: 49983", api}, // ignored on this host

		// A link that opens a port, and what only looks like one.
		{"8000-iabc.example.com", "/.sandlane/open?ticket=x", "", api},
		{"49983-iabc.example.com", "/.sandlane/open", "", api},
		{"8000-iabc.example.com", "/.sandlane/open/?ticket=x", "", extproc},
		{"8000-iabc.example.com", "/x/../.sandlane/open", "", extproc},
		{"8000-iabc.example.com", "/.sandlane%2fopen", "", extproc},

		// The three forms of a target.
		{"8000-iabc.example.com", "/sandboxes", "", extproc},
		{"8000-iabc.api.example.com", "/templates", "", extproc},
		{"49983-iabc.localhost:8080", "/health", "", extproc},
		{"localhost", "/health", "E2b-Sandbox-Id: iabc\nE2b-Sandbox-Port: 49983", extproc},
		{"localhost", "/templates", "X-Sandbox-Id: iabc\nX-Sandbox-Port: 8000", extproc},
		{"localhost", "/templates", "x-SANDBOX-id: iabc", extproc},
		{"localhost", "/templates", "X-Sandbox-Port: 8000", extproc},
		{"localhost", "/templates", "E2b-Sandbox-Port: 8000", extproc},
		{"localhost", "/templates", "E2b-Sandbox-Id: iabc", extproc},
		{"localhost", "/templates", "X-Sandbox-Id:", extproc},
		{"localhost", "/sandboxes/iabc/8000", "", extproc},
		{"localhost", "/sandboxes/iabc/8000/", "", extproc},
		{"localhost", "/sandboxes/iabc/8000/sandboxes", "", extproc},
		{"127.0.0.1", "/sandboxes/iabc/8000/templates?x", "", extproc},
		{"sandbox.example.com", "/sandboxes/iabc/49983/health", "", extproc},
		{"localhost", "//sandboxes//iabc//8000//x", "", extproc},
		{"localhost", "/sandboxes/iabc/x/../8000/", "", extproc},
		{"localhost", "/sandboxes/iabc/x/%2e%2e/8000/", "", extproc},
		{"localhost", "/templates/../sandboxes/iabc/8000/", "", extproc},
		{"localhost", "/templates/%2E%2E/sandboxes/iabc/8000/", "", extproc},
		{"localhost", "/sandboxes/iabc/08000/", "", extproc}, // ExtProc refuses these
		{"localhost", "/sandboxes/iabc/%38000/", "", extproc},
		{"localhost", "/sandboxes/iabc/800x/", "", extproc},
		{"localhost", "/sandboxes/ia%2F..%2Fbc/8000/", "", extproc},
		// What has another reading is never the API's: ExtProc judges all of them.
		{"localhost", "/templates/..%2Fsandboxes%2Fiabc%2F8000%2F", "", extproc},
		{"localhost", "/templates/..%2fsandboxes%2Fiabc%2F8000%2F", "", extproc},
		{"localhost", "/templates/%2e.%2Fsandboxes/iabc/8000/", "", extproc},
		{"localhost", "/templates/.%2E/sandboxes/iabc/8000/", "", extproc},
		{"localhost", "/sandboxes/iabc/timeout/../8000/", "", extproc},
		{"localhost", "/sandboxes/iabc/timeout/..", "", extproc},
		{"localhost", "/sandboxes/iabc/timeout/.?x", "", extproc},
		{"localhost", `/templates/..\sandboxes\iabc\8000\`, "", extproc},
		{"localhost", "/templates/..%5csandboxes%5Ciabc%5C8000%5C", "", extproc},
		{"localhost", "/templates/x//y", "", extproc},
		{"localhost", "/templates/x%2F/y", "", extproc},
		{"localhost", "/x/../templates", "", extproc},
		{"localhost", "//templates", "", extproc},
		{"api.example.com", "/x/../templates", "", extproc},
		// No sandbox's: ExtProc says so.
		{"localhost", "/", "", extproc},
		{"localhost", "/sandboxesx", "", extproc},
		{"localhost", "/templatesx", "", extproc},
		{"localhost", "/healthz", "", extproc},
		{"localhost", "/health/x", "", extproc},
		{"localhost", "/sandboxes%2Fiabc", "", extproc},
		{"api.example.com", "/", "", extproc},
		{"api", "/sandboxes", "", extproc},
		{"sandbox", "/sandboxes", "", extproc},
		{"localhost.example.com", "/sandboxes", "", extproc},
		{"xapi.example.com", "/sandboxes", "", extproc},
		{"api.example.com..", "/sandboxes", "", extproc},
		{"[::1].", "/sandboxes", "", extproc},
		{"256.0.0.1", "/sandboxes", "", extproc},
		{"1.2.3.4.5", "/sandboxes", "", extproc},
	} {
		request := "GET " + tc.path + " HTTP/1.1\nHost: " + tc.host
		if tc.header != "" {
			request += "\n" + tc.header
		}
		_, body := w.raw(t, request)
		want := "from the pod"
		if tc.api {
			want = "API /"
		}
		if !strings.HasPrefix(body, want) {
			t.Errorf("%s%s [%s]: %q, want %q…", tc.host, tc.path, tc.header, body, want)
		}
		if asked := w.gateway.forget(); (asked > 0) == tc.api || asked > 1 {
			t.Errorf("%s%s [%s]: ExtProc was asked %d times", tc.host, tc.path, tc.header, asked)
		}
	}
}

// forget returns how many requests ExtProc has seen since the last forget.
func (g *gateway) forget() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.seen)
	g.seen = nil
	return n
}

// The API sees its own key and no header that is for Envoy or for ExtProc.
func TestAPIHeaders(t *testing.T) {
	t.Parallel()
	w := startWorld(t, Options{}, true)
	saw := make(chan http.Header, 1)
	w.serveAPI(t, func(rw http.ResponseWriter, r *http.Request) { saw <- r.Header })
	resp, body := w.get(t, "/sandboxes", "x-api-key", "e2b_1", "x-sandbox-api-key", "e2b_2", "x-envoy-internal", "true",
		"x-envoy-upstream-rq-timeout-ms", "1", "x-envoy-retry-on", "5xx", "x-envoy-anything", "x")
	if resp.StatusCode != 200 {
		t.Fatalf("%d %q", resp.StatusCode, body)
	}
	h := <-saw
	if h.Get("X-Api-Key") != "e2b_1" {
		t.Errorf("the API did not get its key: %v", h)
	}
	for name := range h {
		if l := strings.ToLower(name); strings.HasPrefix(l, "x-envoy") || l == "x-sandbox-api-key" {
			t.Errorf("the API got %s", name)
		}
	}
}

// A gateway that is not there is a 503 to try again; one that breaks off in the
// middle may have done what was asked for, and SDKs are told not to repeat it.
func TestAPIFails(t *testing.T) {
	t.Parallel()
	w := startWorld(t, Options{}, true)
	answer := func(status int, retryAfter, shouldRetry, message string) {
		t.Helper()
		resp, body := w.get(t, "/v2/sandboxes")
		var got struct {
			Code    int
			Message string
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || resp.StatusCode != status || got.Code != status || got.Message != message {
			t.Errorf("%d %q, want %d %q", resp.StatusCode, body, status, message)
		}
		if a, b := resp.Header.Get("Retry-After"), resp.Header.Get("Should-Retry"); a != retryAfter || b != shouldRetry {
			t.Errorf("Retry-After %q, Should-Retry %q; want %q, %q", a, b, retryAfter, shouldRetry)
		}
	}
	answer(503, "1", "", noAnswerMessage)
	w.serveAPI(t, func(rw http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(rw).Hijack()
		if err == nil {
			_ = c.Close()
		}
	})
	answer(500, "", "false", unknownMessage)
	if n := w.gateway.forget(); n != 0 {
		t.Errorf("ExtProc was asked %d times", n)
	}
}
