package envoy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sandlane/sandlane/extproc"
)

// Nothing internal that a client sends reaches ExtProc or the sandbox, and the
// sandbox sees neither the key nor headers of Envoy's own.
func TestInternalHeadersAreStripped(t *testing.T) {
	t.Parallel()
	w := startWorld(t, Options{}, true)
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	resp, body := w.get(t, "/a%2Fb?q=1",
		"x-envoy-original-dst-host", other.Addr().String(),
		"x-envoy-upstream-rq-timeout-ms", "1", "x-envoy-retry-on", "5xx", "x-envoy-max-retries", "9",
		"x-envoy-internal", "true", "x-envoy-decorator-operation", "x", "X-Envoy-Anything", "x",
		"x-sandbox-api-key", "secret", "x-forwarded-for", "10.0.0.1", "x-request-id", "mine", "x_under", "1",
		"cookie", "c=1", "x-sandbox-id", "abc")
	if resp.StatusCode != 200 || body != "from the pod" {
		t.Fatalf("%d %q, want the pod's answer", resp.StatusCode, body)
	}
	if got := resp.Header.Get("Server"); got != "pod" {
		t.Errorf("server header %q, want the pod's", got)
	}
	r := <-w.podSaw
	for name := range r.Header {
		if l := strings.ToLower(name); strings.HasPrefix(l, "x-envoy") || l == "x-sandbox-api-key" {
			t.Errorf("the pod got %s: %s", name, r.Header.Get(name))
		}
	}
	if r.RequestURI != "/a%2Fb?q=1" || r.Header.Get("X-Request-Id") != "mine" || r.Header["X_under"] == nil {
		t.Errorf("the pod got %s with %v: path, request ID and headers with underscores must pass", r.RequestURI, r.Header)
	}
	seen := w.gateway.last()
	if seen["x-sandbox-api-key"] != "secret" || seen["x-sandbox-id"] != "abc" || seen[":path"] != "/a%2Fb?q=1" {
		t.Errorf("ExtProc saw %v", seen)
	}
	allowed := strings.Join(extproc.ForwardedHeaders(), " ") + " "
	for name := range seen {
		if !strings.Contains(allowed, name+" ") {
			t.Errorf("ExtProc was sent %s, which it does not read", name)
		}
	}
}

// Without a gateway, an answer, or metadata there is an error, never a pod.
func TestFailsClosed(t *testing.T) {
	t.Parallel()
	t.Run("no gateway", func(t *testing.T) {
		t.Parallel()
		w := startWorld(t, Options{}, false)
		wantNoAnswer(t, w)
	})
	for name, answer := range map[string]*extprocv3.ProcessingResponse{
		"stream ended": nil,
		"no metadata":  {Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}},
		"no address":   to("abc"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, Options{}, true)
			w.gateway.answer = func(string) *extprocv3.ProcessingResponse { return answer }
			wantNoAnswer(t, w)
		})
	}
}

func wantNoAnswer(t *testing.T, w *world) {
	t.Helper()
	resp, body := w.get(t, "/", "x-envoy-original-dst-host", w.pod.Listener.Addr().String())
	if resp.StatusCode != 503 || !strings.Contains(body, noAnswerMessage) || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %q retry-after %q, want the gateway's 503", resp.StatusCode, body, resp.Header.Get("Retry-After"))
	}
	if len(w.podSaw) > 0 {
		t.Error("the pod was reached")
	}
}

// A closed port is E2B's 502: JSON for programs, a page for browsers.
func TestPortClosed(t *testing.T) {
	t.Parallel()
	w := startWorld(t, Options{}, true)
	closed := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	w.gateway.answer = func(string) *extprocv3.ProcessingResponse { return to(closed) }
	const chrome = "Mozilla/5.0 (X11; Linux x86_64) Chrome/130"
	for name, tc := range map[string]struct {
		headers []string
		html    bool
	}{
		"curl":                {[]string{"user-agent", "curl/8", "accept", "*/*"}, false},
		"no user agent":       {[]string{"user-agent", ""}, false},
		"browser":             {[]string{"user-agent", chrome, "accept", "text/html,*/*"}, true},
		"browser, any accept": {[]string{"user-agent", chrome}, true},
		"browser wants JSON":  {[]string{"user-agent", chrome, "accept", "application/json"}, false},
		"browser, both":       {[]string{"user-agent", chrome, "accept", "text/html, application/json"}, true},
		"script, fetch":       {[]string{"user-agent", chrome, "sec-fetch-mode", "cors"}, false},
		"script, XHR":         {[]string{"user-agent", chrome, "x-requested-with", "XMLHttpRequest"}, false},
		"navigating":          {[]string{"user-agent", "x", "sec-fetch-mode", "navigate", "accept", "application/json"}, true},
		"node's fetch (cors)": {[]string{"user-agent", "node", "sec-fetch-mode", "cors", "accept", "*/*"}, false},
	} {
		resp, body := w.get(t, "/", tc.headers...)
		if resp.StatusCode != 502 {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
		if tc.html {
			if resp.Header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.HasPrefix(body, "<html") || !strings.HasSuffix(body, "</html>") || !strings.Contains(body, "<code>abc</code>") || !strings.Contains(body, "<h1>Closed Port Error</h1>") || !strings.Contains(body, "no service running on port 8000") {
				t.Errorf("%s: %s %q, want a page", name, resp.Header.Get("Content-Type"), body)
			}
			continue
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Errorf("%s: %v in %q", name, err, body)
			continue
		}
		if fmt.Sprint(got) != "map[code:502 message:"+portClosedMessage+" port:8000 sandboxId:abc]" || resp.Header.Get("Content-Type") != "application/json; charset=utf-8" {
			t.Errorf("%s: %s %v", name, resp.Header.Get("Content-Type"), got)
		}
	}
	log := <-w.gateway.logs
	entry := log.GetHttpLogs().GetLogEntry()[0].GetCommonProperties()
	md := entry.GetMetadata().GetFilterMetadata()[extproc.MetadataNamespace].GetFields()
	if !entry.GetResponseFlags().GetUpstreamConnectionFailure() || md["sandbox_id"].GetStringValue() != "abc" || md["claim"].GetStringValue() != "c" {
		t.Errorf("the access log says %v", entry)
	}
}

// What a server does to HTTP is 502 and not called a closed port: that text is for refused
// connections alone.
func TestServersThatBreakHTTP(t *testing.T) {
	t.Parallel()
	var answer atomic.Value
	at := rawPod(t, func(_ int, c net.Conn, r *bufio.Reader) {
		_ = readHead(r)
		// A test that wants a closed port may have been given this one before it was taken.
		text, _ := answer.Load().(string)
		_, _ = io.WriteString(c, text)
	})
	w := startWorld(t, Options{}, true)
	w.gateway.answer = func(string) *extprocv3.ProcessingResponse { return to(at.String()) }
	unheard := map[string]int{} // how often each path was asked for
	for name, text := range map[string]string{
		"nothing":                "",
		"no HTTP":                "SSH-2.0-OpenSSH\r\n",
		"half a head":            "HTTP/1.1 200 OK\r\nX: a",
		"two lengths":            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
		"length and chunks":      "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nok",
		"a space before a colon": "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
		"too many headers":       "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: a\r\n", maxAnswerHeaders+1) + "\r\n",
		"too large headers":      "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", answerHeadersKB<<10) + "\r\n\r\n",
		"status 99":              "HTTP/1.1 99 X\r\nContent-Length: 2\r\n\r\nok",
		"status 099":             "HTTP/1.1 099 X\r\nContent-Length: 2\r\n\r\nok",
		"status 1000":            "HTTP/1.1 1000 X\r\nContent-Length: 2\r\n\r\nok",
		"status 199":             "HTTP/1.1 199 X\r\n\r\n",
	} {
		answer.Store(text)
		path := "/" + strings.ReplaceAll(name, " ", "-")
		if name != "status 1000" { // Envoy reads it as an answer, which badStatusFilter replaces
			unheard[path] = 2
		}
		resp, body := w.get(t, path)
		var got map[string]any
		if err := json.Unmarshal([]byte(body), &got); err != nil || resp.StatusCode != 502 || fmt.Sprint(got) != "map[code:502 message:"+noHTTPMessage+" port:8000 sandboxId:abc]" {
			t.Errorf("%s: %d %q", name, resp.StatusCode, body)
		}
		if resp, body := w.get(t, path, "sec-fetch-mode", "navigate"); resp.StatusCode != 502 || !strings.Contains(body, "<h1>No valid answer</h1>") {
			t.Errorf("%s, for a browser: %d %q", name, resp.StatusCode, body)
		}
	}
	// The gateway hears of each connection that Envoy gave up: the pod may be gone.
	for len(unheard) > 0 {
		for _, e := range (<-w.gateway.logs).GetHttpLogs().GetLogEntry() {
			about, path := e.GetCommonProperties(), e.GetRequest().GetPath()
			fields := about.GetMetadata().GetFilterMetadata()[extproc.MetadataNamespace].GetFields()
			if fields[extproc.MetadataBroken] == nil && !about.GetResponseFlags().GetUpstreamConnectionTermination() || fields[extproc.MetadataSandboxID].GetStringValue() != "abc" {
				continue
			}
			if unheard[path]--; unheard[path] == 0 {
				delete(unheard, path)
			}
		}
	}
	for _, status := range []int{200, 204, 404, 599, 600, 999} {
		answer.Store(fmt.Sprintf("HTTP/1.1 %d X\r\nX: a\r\nConnection: close\r\n\r\n", status))
		if resp, body := w.get(t, "/"); resp.StatusCode != status || body != "" || resp.Header.Get("X") != "a" {
			t.Errorf("%d: %d %q", status, resp.StatusCode, body)
		}
	}
}

// What Envoy refuses by itself is told in E2B's form.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	w := startWorld(t, Options{}, true)
	for name, tc := range map[string]struct {
		request string
		status  int
	}{
		"CONNECT":          {"CONNECT 8000-abc.localhost:80 HTTP/1.1\nHost: 8000-abc.localhost:80", 404},
		"a fragment":       {"GET /a#b HTTP/1.1\nHost: localhost", 400},
		"no host":          {"GET /a HTTP/1.0\nX: a", 400},
		"bytes of no URL":  {"GET /\xff HTTP/1.1\nHost: localhost", 400},
		"two lengths":      {"POST / HTTP/1.1\nHost: localhost\nContent-Length: 1\nContent-Length: 2", 400},
		"a bad header":     {"GET / HTTP/1.1\nHost: localhost\nX : a", 400},
		"too large":        {"GET / HTTP/1.1\nHost: localhost\nX: " + strings.Repeat("a", requestHeadersKB<<10), 431},
		"too many headers": {"GET / HTTP/1.1\nHost: localhost\n" + strings.Repeat("X: a\n", maxHeaders) + "X: a", 431},
	} {
		resp, body := w.raw(t, tc.request)
		var got struct {
			Code    int
			Message string
		}
		err := json.Unmarshal([]byte(body), &got)
		if before, _, _ := strings.Cut(refusedMessage, "%"); err != nil || resp.StatusCode != tc.status || got.Code != tc.status || !strings.HasPrefix(got.Message, before) || strings.HasSuffix(got.Message, " ") {
			t.Errorf("%s: %d %q, want %d", name, resp.StatusCode, body, tc.status)
		}
	}
	// ExtProc is asked for CONNECT, which has no path, and refuses it; here it would not.
	if n := w.gateway.forget(); n > 1 || len(w.podSaw) > 0 {
		t.Errorf("ExtProc was asked %d times, the pod %d times", n, len(w.podSaw))
	}
}

// ExtProc's own answers pass unchanged, also those from 500 on.
func TestFinalAnswersAreKept(t *testing.T) {
	t.Parallel()
	w := startWorld(t, Options{}, true)
	const answer = `{"message":"no pod is free","code":503}`
	md, err := structpb.NewStruct(map[string]any{extproc.MetadataNamespace: map[string]any{"final": true}})
	if err != nil {
		t.Fatal(err)
	}
	w.gateway.answer = func(string) *extprocv3.ProcessingResponse {
		return &extprocv3.ProcessingResponse{
			DynamicMetadata: md,
			Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{
				Status: &typev3.HttpStatus{Code: typev3.StatusCode_ServiceUnavailable}, Body: []byte(answer),
				Headers: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{
					{Header: &corev3.HeaderValue{Key: "retry-after", RawValue: []byte("7")}},
				}},
			}},
		}
	}
	resp, body := w.get(t, "/", "user-agent", "Mozilla", "accept", "text/html")
	if resp.StatusCode != 503 || body != answer || resp.Header.Get("Retry-After") != "7" {
		t.Errorf("%d %q retry-after %q, want ExtProc's own answer", resp.StatusCode, body, resp.Header.Get("Retry-After"))
	}
}
