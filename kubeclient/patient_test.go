package kubeclient

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sandlane/sandlane/test/bubble"
)

// server is a transport to one that is away for some tries.
type server struct {
	away  int
	fails error
	tries int
}

func (s *server) RoundTrip(*http.Request) (*http.Response, error) {
	s.tries++
	if s.tries <= s.away {
		return nil, s.fails
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(""))}, nil
}

var refused = &net.OpError{Op: "dial", Err: errors.New("connection refused")}

func TestPatient(t *testing.T) {
	for name, tc := range map[string]struct {
		method string
		away   int
		fails  error
		tries  int
		wantOK bool
	}{
		"there":                      {http.MethodGet, 0, nil, 1, true},
		"a read waits":               {http.MethodGet, 20, refused, 21, true},
		"a write does not":           {http.MethodPatch, 20, refused, 1, false},
		"another failure is told":    {http.MethodGet, 20, errors.New("broken"), 1, false},
		"until its context is over":  {http.MethodGet, 1000, refused, 0, false},
		"an answer that was cut off": {http.MethodGet, 20, &net.OpError{Op: "read", Err: io.EOF}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := &server{away: tc.away, fails: tc.fails}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, tc.method, "http://x/", nil)
				if err != nil {
					t.Fatal(err)
				}
				res, err := Patient(&rest.Config{}).WrapTransport(s).RoundTrip(req)
				if (err == nil) != tc.wantOK {
					t.Fatalf("%v, want success %v", err, tc.wantOK)
				}
				if err == nil {
					_ = res.Body.Close()
				}
				if tc.tries != 0 && s.tries != tc.tries {
					t.Errorf("%d tries, want %d", s.tries, tc.tries)
				}
				if tc.tries == 0 && (ctx.Err() == nil || s.tries < 30) {
					t.Errorf("gave up after %d tries, with its context %v", s.tries, ctx.Err())
				}
			})
		})
	}
}

// After a long absence the server is met at most a pause after its return.
func TestPatientComesBackSoon(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		back := time.Now().Add(time.Hour)
		p := patient{transport(func(*http.Request) (*http.Response, error) {
			if time.Now().Before(back) {
				return nil, refused
			}
			return &http.Response{Body: http.NoBody}, nil
		})}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := p.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if late := time.Since(back); late > lastPause {
			t.Errorf("%v late, want at most %v", late, lastPause)
		}
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
