package envoy

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/sandlane/sandlane/extproc"
)

// Each error that Envoy answers has the client's X-Request-ID, or a new one if that may not
// stand in a log, and the gateway gets a record with the same. What a pod answers has the
// pod's own headers alone.
func TestErrorsHaveTheRequestID(t *testing.T) {
	t.Parallel()
	w := startWorld(t, Options{ClientRate: 1000}, true)
	w.podSaw = nil
	pod := w.gateway.answer
	closed := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	w.gateway.answer = func(path string) *extprocv3.ProcessingResponse {
		switch {
		case strings.HasPrefix(path, "/closed"):
			return to(closed)
		case strings.HasPrefix(path, "/unknown"):
			return unknownSandbox()
		case strings.HasPrefix(path, "/nothing"):
			return nil
		}
		return pod(path)
	}
	w.serveAPI(t, func(rw http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) })
	made := regexp.MustCompile(`^[0-9a-f-]{36}$`)
	longest := strings.Repeat("a", extproc.MaxRequestID)
	n, want := 0, map[string]string{} // ID and status by path
	for path, status := range map[string]int{"/closed": 502, "/unknown": 404, "/nothing": 503, "/sandboxes": 500} {
		for _, tc := range []struct {
			id   string
			kept bool
		}{
			{"", false},
			{"mine-1:/+=\"~", true},
			{longest, true},
			{longest + "a", false},
			{"a b", false},
			{"a\tb", false},
			{"\xc3\xa9", false},
		} {
			n++
			head := fmt.Sprintf("GET %s?%d HTTP/1.1\nHost: localhost", path, n)
			if tc.id != "" {
				head += "\nX-Request-ID: " + tc.id
			}
			resp, body := w.raw(t, head)
			ids := resp.Header.Values("X-Request-Id")
			if resp.StatusCode != status || len(ids) != 1 || tc.kept && ids[0] != tc.id || !tc.kept && !made.MatchString(ids[0]) {
				t.Errorf("%s with %q: %d %q %.80q", path, tc.id, resp.StatusCode, ids, body)
				continue
			}
			want[fmt.Sprintf("%s?%d", path, n)] = fmt.Sprint(ids[0], " ", status)
		}
	}
	for end := time.After(20 * time.Second); len(want) > 0; {
		select {
		case m := <-w.gateway.logs:
			for _, entry := range m.GetHttpLogs().GetLogEntry() {
				path := entry.GetRequest().GetPath()
				got := fmt.Sprint(entry.GetCommonProperties().GetCustomTags()[extproc.HeaderRequestID], " ", entry.GetResponse().GetResponseCode().GetValue())
				if want[path] != "" && got != want[path] {
					t.Errorf("%s: the record has %q, the answer %q", path, got, want[path])
				}
				delete(want, path)
			}
		case <-end:
			t.Fatalf("no record of %v", want)
		}
	}
	if resp, _ := w.raw(t, "GET /a#b HTTP/1.1\nHost: localhost"); resp.StatusCode != 400 || !made.MatchString(resp.Header.Get("X-Request-Id")) {
		t.Errorf("what Envoy refuses: %d %v", resp.StatusCode, resp.Header)
	}
	if resp, _ := w.get(t, "/hit", "x-request-id", "mine"); resp.StatusCode != 200 || resp.Header["X-Request-Id"] != nil {
		t.Errorf("a pod's answer: %d %v", resp.StatusCode, resp.Header)
	}
}
