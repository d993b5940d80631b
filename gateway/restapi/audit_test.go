package restapi

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandlane/sandlane/gateway/restapi/ratelimit"
)

// Each request that may change something leaves one line that says who did what;
// nothing secret is in the log or in the metrics, and no metric names a sandbox.
func TestAuditAndMetrics(t *testing.T) {
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	f := newFake()
	s := newServer(t, f, func(o *Options) {
		o.Log, o.Registerer = slog.New(slog.NewJSONHandler(&log, nil)), reg
		o.BadKeyLimit = ratelimit.Limit{PerSecond: 1e-9, Burst: 1}
	})
	made := idOf(t, createWith(t, s, "/v2/sandboxes", keyA, "idem-hunter2", `{"templateID":"base","envVars":{"P":"hunter2"},"metadata":{"m":"hunter2"}}`))
	ask(t, s, "GET", "/sandboxes/"+idA, keyA, "")
	ask(t, s, "GET", "/v2/sandboxes", keyA, "")
	ask(t, s, "POST", "/sandboxes/"+idA+"-hunter2/timeout", keyA, `{"timeout":5}`)
	ask(t, s, "DELETE", "/sandboxes/"+idA, keyB, "")
	ask(t, s, "DELETE", "/sandboxes/"+idA, "e2b_hunter2", "") // the one that is allowed
	ask(t, s, "DELETE", "/sandboxes/"+idA, "e2b_hunter2", "") // counted, not logged
	ask(t, s, "DELETE", "/nosuch/hunter2", keyA, "")
	ask(t, s, "POST", "/v2/sandboxes", keyA, `{"templateID":"base","timeout":"hunter2"}`)

	want := []string{
		"POST /v2/sandboxes a aaaa " + made + " 201",
		"POST /sandboxes/{sandboxID}/timeout a aaaa " + idA + " 204",
		"DELETE /sandboxes/{sandboxID} b bbbb " + idA + " 404",
		"DELETE /sandboxes/{sandboxID}    401",
		"POST /v2/sandboxes a aaaa  400",
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), log.String())
	}
	for i, line := range lines {
		var l struct {
			Msg, Method, Route, Team, Key, Sandbox string
			Status                                 json.Number
			Duration                               int64
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Msg != "audit" || l.Duration <= 0 {
			t.Errorf("%s: %v", line, err)
		}
		if got := strings.Join([]string{l.Method, l.Route, l.Team, l.Key, l.Sandbox, l.Status.String()}, " "); got != want[i] {
			t.Errorf("line %q, want %q", got, want[i])
		}
	}

	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted, text := map[string]float64{}, ""
	for _, family := range families {
		text += family.String()
		if family.GetName() != "sandlane_e2b_requests_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			counted[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
		}
	}
	for key, n := range map[string]float64{
		"POST /v2/sandboxes 201": 1, "POST /v2/sandboxes 400": 1, "GET /sandboxes/{sandboxID} 200": 1,
		"DELETE /sandboxes/{sandboxID} 404": 1, "DELETE /sandboxes/{sandboxID} 401": 1, "DELETE /sandboxes/{sandboxID} 429": 1, "none 404": 1,
	} {
		if counted[key] != n {
			t.Errorf("%s: %v, want %v; %v", key, counted[key], n, counted)
		}
	}
	for _, secret := range []string{"hunter2", keyA, keyB, "-of-"} {
		if strings.Contains(log.String()+text, secret) {
			t.Errorf("%q is in the log or the metrics", secret)
		}
	}
	if strings.Contains(text, idA) || strings.Contains(text, made) {
		t.Error("a metric names a sandbox")
	}
}

// What goes wrong inside is in the log, under the ID that the client has.
func TestInternalErrorsAreLogged(t *testing.T) {
	var log bytes.Buffer
	f := newFake()
	f.setEnd = http.ErrBodyNotAllowed // anything unknown
	s := newServer(t, f, func(o *Options) { o.Log = slog.New(slog.NewJSONHandler(&log, nil)) })
	w := ask(t, s, "POST", "/sandboxes/"+idA+"/timeout", keyA, `{"timeout":5}`)
	fields := strings.Fields(strings.Trim(read[map[string]any](t, w)["message"].(string), "."))
	id := fields[len(fields)-1]
	if w.Code != 500 || !strings.Contains(log.String(), id) || !strings.Contains(log.String(), f.setEnd.Error()) {
		t.Errorf("%d %s; log %s", w.Code, w.Body, log.String())
	}
}
