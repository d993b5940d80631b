package restapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/ratelimit"
	"github.com/sandlane/sandlane/test/bubble"
)

func get(t *testing.T, s *Server, key, remote string, forwarded ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/sandboxes", nil)
	r.RemoteAddr = remote
	for _, f := range forwarded {
		r.Header.Add("X-Forwarded-For", f)
	}
	return askWith(t, s, r, key)
}

// A key has its burst at once and its rate afterwards; the headers say so, and
// another key has its own.
func TestKeyLimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newServer(t, newFake(), func(o *Options) { o.KeyLimit = ratelimit.Limit{PerSecond: 0.5, Burst: 3} })
		for left := 2; left >= 0; left-- {
			w := get(t, s, keyA, "")
			if w.Code != 200 || w.Header().Get("RateLimit-Limit") != "3" || w.Header().Get("RateLimit-Remaining") != fmt.Sprint(left) {
				t.Fatalf("with %d left: %d %v", left, w.Code, w.Header())
			}
		}
		w := get(t, s, keyA, "")
		if w.Code != 429 || w.Header().Get("Retry-After") != "2" || w.Header().Get("RateLimit-Remaining") != "0" || w.Header().Get("RateLimit-Reset") != "6" {
			t.Fatalf("over the limit: %d %v", w.Code, w.Header())
		}
		if w := get(t, s, keyB, ""); w.Code != 200 {
			t.Errorf("another key: %d", w.Code)
		}
		time.Sleep(1999 * time.Millisecond)
		if w := get(t, s, keyA, ""); w.Code != 429 || w.Header().Get("Retry-After") != "1" {
			t.Errorf("too early: %d %v", w.Code, w.Header())
		}
		time.Sleep(time.Millisecond)
		if w := get(t, s, keyA, ""); w.Code != 200 {
			t.Errorf("after the time it was told: %d", w.Code)
		}
	})
}

// A client that tries wrong keys is slowed down, by where its requests come from. What a
// client writes into X-Forwarded-For is not where it comes from, and a valid key
// from the same source works on.
func TestBadKeyLimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newServer(t, newFake(), func(o *Options) { o.BadKeyLimit = ratelimit.Limit{PerSecond: 1, Burst: 2} })
		codes := func(n int, key, remote string, forwarded ...string) (got []int) {
			for i := range n {
				f := append([]string{fmt.Sprintf("9.9.9.%d", i)}, forwarded...) // the client's own, each time another
				got = append(got, get(t, s, key, remote, f...).Code)
			}
			return got
		}
		for _, c := range []struct {
			what, key, remote string
			forwarded         []string
			want              string
		}{
			{"over a socket", "e2b_1", "", []string{"1.1.1.1"}, "[401 401 429]"},
			{"over a socket, in one header", "e2b_1", "@", []string{"5.5.5.5, 1.1.1.1"}, "[429 429 429]"},
			{"no key", "", "", []string{"1.1.1.1"}, "[429 429 429]"},
			{"another source", "e2b_1", "", []string{"1.1.1.2"}, "[401 401 429]"},
			{"an IPv6 source", "e2b_1", "", []string{"2001:db8::1"}, "[401 401 429]"},
			{"its neighbour", "e2b_1", "", []string{"2001:db8::2"}, "[429 429 429]"},
			{"over TCP", "e2b_1", "7.7.7.7:1", []string{"1.1.1.3"}, "[401 401 429]"},
			{"the same again", "e2b_1", "7.7.7.7:2", []string{"1.1.1.4"}, "[429 429 429]"},
			{"a valid key", keyA, "", []string{"1.1.1.1"}, "[200 200 200]"},
		} {
			if got := fmt.Sprint(codes(3, c.key, c.remote, c.forwarded...)); got != c.want {
				t.Errorf("%s: %s, want %s", c.what, got, c.want)
			}
		}
		time.Sleep(time.Second)
		if got := fmt.Sprint(codes(2, "e2b_1", "", "1.1.1.1")); got != "[401 429]" {
			t.Errorf("a second later: %s", got)
		}
	})
}
