package console

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/sandlane/sandlane/console/processes"
)

// The page learns what the user may do, and whether the API server is away, also where a load
// balancer answers for it; nothing of a server that has ended goes on.
func TestServe(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`))
	}))
	defer api.Close()
	find := func(context.Context) ([]processes.Process, error) { return nil, nil }
	s, err := New(Options{Config: &rest.Config{Host: api.URL}, Processes: find, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	address, token, _ := strings.Cut(s.URL(l.Addr()), "#")
	client := &http.Client{Transport: &http.Transport{}}
	ask := func(path string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	stream := ask("api/changes")
	defer stream.Body.Close()
	for began := time.Now(); ; {
		var o overview
		resp := ask("api/overview")
		err := json.NewDecoder(resp.Body).Decode(&o)
		_ = resp.Body.Close()
		if err == nil && o.MayPatch && strings.Contains(o.AwayWhy, "502 Bad Gateway") {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("after a minute: %v, %+v", err, o)
		}
		_, _ = stream.Body.Read(make([]byte, 64)) // until something has changed
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	client.CloseIdleConnections()
}
