package daemon

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
)

// The level changes while the process runs, for callers on the same machine alone.
func TestLogLevel(t *testing.T) {
	before := slog.Default()
	t.Cleanup(func() { LogWith(before) })
	var out bytes.Buffer
	o := LogOptions{format: "text", level: "info"}
	log, err := o.Open(&out)
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("first")
	for _, ask := range []struct {
		method, from, body string
		status             int
		answer             string
	}{
		{"GET", "127.0.0.1:1", "", 200, "info"},
		{"PUT", "10.0.0.7:1", "debug", 403, "kubectl port-forward"},
		{"PUT", "127.0.0.6:1", "debug", 403, "kubectl port-forward"},
		{"PUT", "127.0.0.1:1", "loud", 400, "must be debug, info, warn or error"},
		{"PUT", "127.0.0.1:1", "info+2", 400, "must be"},
		{"PUT", "127.0.0.1:1", strings.Repeat("d", 100), 400, "must be"},
		{"POST", "127.0.0.1:1", "debug", 405, "GET or PUT"},
		{"GET", "[::1]:1", "", 200, "info"},
		{"PUT", "[::1]:1", "debug\n", 200, "debug"},
		{"GET", "127.0.0.1:1", "", 200, "debug"},
	} {
		r := httptest.NewRequest(ask.method, logLevelPath, strings.NewReader(ask.body))
		r.RemoteAddr = ask.from
		w := httptest.NewRecorder()
		o.LevelHandler().ServeHTTP(w, r)
		if w.Code != ask.status || !strings.Contains(w.Body.String(), ask.answer) {
			t.Errorf("%s from %s with %q: %d %s, want %d with %q", ask.method, ask.from, ask.body, w.Code, w.Body, ask.status, ask.answer)
		}
	}
	log.Debug("second")
	if text := out.String(); strings.Contains(text, "first") || !strings.Contains(text, "second") || !strings.Contains(text, "level was changed") {
		t.Errorf("the log says %q", text)
	}
}
