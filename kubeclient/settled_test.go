package kubeclient

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sandlane/sandlane/test/bubble"
)

// starting is an API server that refuses everything until it is ready.
type starting struct {
	ready   time.Time // when it will be
	roles   time.Time // when it will have read its roles, and so answer at /readyz
	forbids bool      // also when it is
	bodies  []string
}

func (s *starting) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(status int) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
	}
	ready := !time.Now().Before(s.ready)
	if r.URL.Path == "/readyz" {
		if time.Now().Before(s.roles) {
			return answer(http.StatusForbidden)
		}
		if ready {
			return answer(http.StatusOK)
		}
		return answer(http.StatusInternalServerError)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.bodies = append(s.bodies, string(body))
	if !ready || s.forbids {
		return answer(http.StatusForbidden)
	}
	return answer(http.StatusCreated)
}

func TestSettled(t *testing.T) {
	for _, tc := range []struct {
		name           string
		ready, roles   time.Duration // from now
		forbids        bool
		patience       time.Duration
		want, requests int
		atMost         time.Duration
	}{
		{"just started", 3 * time.Second, -time.Hour, false, time.Minute, http.StatusCreated, 2, 4 * time.Second},
		{"ready between the refusal and the question", 0, -time.Hour, false, time.Minute, http.StatusCreated, 1, 0},
		{"refused by a ready server", -time.Hour, -time.Hour, true, time.Minute, http.StatusForbidden, 2, 0},
		{"just started, without roles", 3 * time.Second, 2 * time.Second, false, time.Minute, http.StatusCreated, 2, 4 * time.Second},
		{"refused by a server that nobody may ask", -time.Hour, time.Hour, true, time.Minute, http.StatusForbidden, 2, 11 * time.Second},
		{"never ready", time.Hour, -time.Hour, false, time.Minute, http.StatusServiceUnavailable, 1, 11 * time.Second},
		{"no patience", time.Hour, -time.Hour, false, 2 * time.Second, http.StatusServiceUnavailable, 1, 2 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				server := &starting{ready: time.Now().Add(tc.ready), roles: time.Now().Add(tc.roles), forbids: tc.forbids}
				ctx, cancel := context.WithTimeout(t.Context(), tc.patience)
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://api/apis/x", strings.NewReader("all of it"))
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				res, err := settled{server}.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				if took := time.Since(began); res.StatusCode != tc.want || took > tc.atMost {
					t.Errorf("%d after %v, want %d within %v", res.StatusCode, took, tc.want, tc.atMost)
				}
				if len(server.bodies) != tc.requests {
					t.Errorf("it was sent %d times, want %d", len(server.bodies), tc.requests)
				}
				for _, body := range server.bodies {
					if body != "all of it" {
						t.Errorf("a body of %q", body)
					}
				}
			})
		})
	}
}

// An API server that answers nobody without a token is asked with the token of the account.
func TestSettledWithAToken(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer account":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path != "/readyz":
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, BearerToken: "account"}
	RetryUntilAPIServerReady(config)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	res, err := client.Post(server.URL+"/api/v1/pods", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if took := time.Since(began); res.StatusCode != http.StatusForbidden || took > settleTime/2 {
		t.Errorf("%d after %v, want 403 at once", res.StatusCode, took)
	}
}
