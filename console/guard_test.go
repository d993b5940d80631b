package console

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// Without the token, or for a name that merely leads here, nothing is answered and nothing is
// read; the page's own files run no script but theirs.
func TestGuard(t *testing.T) {
	s, err := New(Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	begun := false
	s.run = func() { begun = true }
	handler := s.handler(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8088})
	ask := func(method, path, host, token string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader("{}"))
		r.Host = host
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	const here = "127.0.0.1:8088"
	for _, tc := range []struct {
		method, path, host, token string
		want                      int
	}{
		{"GET", "/", here, "", http.StatusOK},
		{"GET", "/app.js", "localhost:8088", "", http.StatusOK},
		{"GET", "/", "evil.example:8088", "", http.StatusMisdirectedRequest},
		{"GET", "/api/table/pools", "evil.example:8088", s.token, http.StatusMisdirectedRequest},
		{"GET", "/api/table/pools", here, "", http.StatusUnauthorized},
		{"GET", "/api/table/pools", here, s.token[1:], http.StatusUnauthorized},
		{"GET", "/api/changes", here, "", http.StatusUnauthorized},
		{"POST", "/api/sandboxes/hello/end", here, "", http.StatusUnauthorized},
		{"GET", "/server.go", here, "", http.StatusNotFound},
	} {
		if got := ask(tc.method, tc.path, tc.host, tc.token); got.Code != tc.want {
			t.Errorf("%s %s at %s: %d, want %d", tc.method, tc.path, tc.host, got.Code, tc.want)
		}
	}
	if begun {
		t.Error("it reads for strangers")
	}
	if got := ask("POST", "/api/sandboxes/hello/end", here, s.token); got.Code != http.StatusBadRequest || !begun {
		t.Errorf("with the token, without a UID: %d", got.Code)
	}
	page := ask("GET", "/", here, "")
	body, _ := io.ReadAll(page.Body)
	if p := page.Header().Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'") || strings.Contains(p, "unsafe") || strings.Contains(string(body), "<script>") {
		t.Errorf("policy %q", p)
	}
}
