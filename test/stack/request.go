package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// Echo is what the echo server answers to GET /.
type Echo struct {
	Pod     string              `json:"pod"`
	PodUID  string              `json:"podUID"`
	Process string              `json:"process"`
	Method  string              `json:"method"`
	Host    string              `json:"host"`
	Path    string              `json:"path"`
	Headers map[string][]string `json:"headers"`
	// At is when the answer was made, in seconds since 1970; of pods with a freezer alone.
	At float64 `json:"at"`
}

// Answer is one answer through Envoy.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	// Echo is set when the echo server answered.
	Echo *Echo
}

// String shows status and body, for failures.
func (a Answer) String() string { return fmt.Sprintf("%d %s", a.Status, a.Body) }

// Request is one request for a sandbox by headers.
type Request struct {
	ID   string
	Port string // "8000" when empty
	// Pool is sent as X-Sandbox-Pool when not empty.
	Pool   string
	Method string
	Path   string // "/" when empty
	Header map[string]string
}

// Build makes the HTTP request for the gateway at url.
func (r Request) Build(ctx context.Context, url string) (*http.Request, error) {
	path, port := r.Path, r.Port
	if path == "" {
		path = "/"
	}
	if port == "" {
		port = "8000"
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, url+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Sandbox-Id", r.ID)
	req.Header.Set("X-Sandbox-Port", port)
	if r.Pool != "" {
		req.Header.Set("X-Sandbox-Pool", r.Pool)
	}
	for k, v := range r.Header {
		req.Header.Set(k, v)
	}
	return req, nil
}

// Do sends a request with the given client (nil: one with a minute's
// patience) and reads the whole answer. A transport error fails the test.
func (s *Stack) Do(t testing.TB, c *http.Client, r Request) Answer {
	t.Helper()
	a, err := s.Try(t.Context(), c, r)
	if err != nil {
		t.Fatalf("request for %s: %v", r.ID, err)
	}
	return a
}

// Try is Do for callers that expect errors or run outside the test's goroutine.
func (s *Stack) Try(ctx context.Context, c *http.Client, r Request) (Answer, error) {
	req, err := r.Build(ctx, s.Up.GatewayURL)
	if err != nil {
		return Answer{}, err
	}
	return Send(c, req)
}

// Send sends a request and reads the whole answer. A nil client is one with a
// minute's patience.
func Send(c *http.Client, req *http.Request) (Answer, error) {
	if c == nil {
		c = &http.Client{Timeout: time.Minute}
	}
	res, err := c.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return Answer{}, fmt.Errorf("read the answer: %w", err)
	}
	a := Answer{Status: res.StatusCode, Header: res.Header, Body: body}
	if res.StatusCode == http.StatusOK {
		var e Echo
		if json.Unmarshal(body, &e) == nil && e.PodUID != "" {
			a.Echo = &e
		}
	}
	return a, nil
}

// Touch sends the first request for a sandbox and fails the test unless a pod
// answered.
func (s *Stack) Touch(t testing.TB, id, pool string) Echo {
	t.Helper()
	a := s.Do(t, nil, Request{ID: id, Pool: pool})
	if a.Echo == nil {
		t.Fatalf("first request for %s from %s: %v", id, pool, a)
	}
	return *a.Echo
}

// Sandbox reads a Sandbox; found is false when there is none.
func (s *Stack) Sandbox(t testing.TB, id string) (sb v1alpha1.Sandbox, found bool) {
	t.Helper()
	err := s.Client.Get(t.Context(), client.ObjectKey{Name: id}, &sb)
	if client.IgnoreNotFound(err) != nil {
		t.Fatalf("read sandbox %s: %v", id, err)
	}
	return sb, err == nil
}
