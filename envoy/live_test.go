package envoy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
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
			if resp.Header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.HasPrefix(body, "<html") || !strings.HasSuffix(body, "</html>") || !strings.Contains(body, "<code>abc</code>") || !strings.Contains(body, "<h1>Closed Port Error</h1>") {
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

// A pod that closes the connection instead of answering is 502 as well.
func TestPodDiesBeforeItAnswers(t *testing.T) {
	t.Parallel()
	w := startWorld(t, Options{}, true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(c))
			c.Close()
		}
	}()
	defer func() { l.Close(); <-done }()
	w.gateway.answer = func(string) *extprocv3.ProcessingResponse { return to(l.Addr().String()) }
	if resp, body := w.get(t, "/"); resp.StatusCode != 502 || !strings.Contains(body, portClosedMessage) {
		t.Errorf("%d %q, want the port-closed 502", resp.StatusCode, body)
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
