package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// server notes the calls that reach it, in their order.
type server struct {
	*httptest.Server
	mu  sync.Mutex
	got []string
}

func newServer(t *testing.T) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.got = append(s.got, r.Method+" "+r.Header.Get("Nth")+" "+fmt.Sprint(len(body)))
		s.mu.Unlock()
		if strings.Contains(r.URL.Path, "taken") {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

const claim = `[{"op":"add","path":"/metadata/labels/sandlane.dev~1sandbox-id","value":"a"}]`

// call sends a read, or a claim if it has a body, of a pod.
func call(t *testing.T, tr *Transport, s *server, nth, pod, body string) (int, error) {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPatch
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/api/v1/namespaces/ns/pods/"+pod, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json-patch+json")
	r.Header.Set("Nth", nth)
	answer, err := tr.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	return answer.StatusCode, nil
}

// strikeFirst strikes the first write with f, and no other.
func strikeFirst(f Fault) Plan {
	return func(w Write) Decision {
		if w.Nth == 0 {
			return Decision{Fault: f}
		}
		return Decision{}
	}
}

func TestWhatClientAndServerSee(t *testing.T) {
	const first, read, second, third = "PATCH 1 77", "GET 2 0", "PATCH 3 77", "GET 4 0"
	for _, tc := range []struct {
		fault Fault
		code  int
		err   error
		got   []string
	}{
		{RefusedBefore, 0, syscall.ECONNREFUSED, []string{read, second, third}},
		{ResetBefore, 0, syscall.ECONNRESET, []string{read, second, third}},
		{Error500Before, 500, nil, []string{read, second, third}},
		{Error503Before, 503, nil, []string{read, second, third}},
		{ThrottledBefore, 429, nil, []string{read, second, third}},
		{TimeoutBefore, 0, context.DeadlineExceeded, []string{read, second, third}},
		{ResetAfter, 0, syscall.ECONNRESET, []string{first, read, second, third}},
		{Error500After, 500, nil, []string{first, read, second, third}},
		{Error503After, 503, nil, []string{first, read, second, third}},
		{TimeoutAfter, 0, context.DeadlineExceeded, []string{first, read, second, third}},
		{LateAtNext, 0, context.DeadlineExceeded, []string{first, read, second, third}},
		{LateAfterNext, 0, context.DeadlineExceeded, []string{read, first, second, third}},
		{LateAfterTwo, 0, context.DeadlineExceeded, []string{read, second, first, third}},
		{Slow, 200, nil, []string{first, read, second, third}},
	} {
		t.Run(tc.fault.String(), func(t *testing.T) {
			s := newServer(t)
			tr := New(http.DefaultTransport, strikeFirst(tc.fault))
			code, err := call(t, tr, s, "1", "p", claim)
			if code != tc.code || !errors.Is(err, tc.err) {
				t.Errorf("the client sees %d %v", code, err)
			}
			if n := len(s.got); tc.fault.overtakes() >= 0 && n > 0 {
				t.Errorf("a late write is there at once: %v", s.got)
			}
			for i, body := range []string{"", claim, ""} {
				if code, err := call(t, tr, s, fmt.Sprint(i+2), "p", body); code != 200 || err != nil {
					t.Errorf("call %d: %d %v", i+2, code, err)
				}
			}
			if !slices.Equal(s.got, tc.got) {
				t.Errorf("the server gets %v, want %v", s.got, tc.got)
			}
			want := Strike{Write: Write{Claim, "/api/v1/namespaces/ns/pods/p", "a", 0}, Fault: tc.fault, Fate: Applied}
			if !tc.fault.Sent() {
				want.Fate = NeverSent
			}
			got := tr.Strikes()
			if len(got) == 1 {
				got[0].At = time.Time{}
			}
			if !slices.Equal(got, []Strike{want}) {
				t.Errorf("strikes %+v", got)
			}
		})
	}
}

func TestLateWriteIsFlushed(t *testing.T) {
	s := newServer(t)
	tr := New(http.DefaultTransport, strikeFirst(LateAfterTwo))
	if _, err := call(t, tr, s, "1", "taken", claim); err == nil {
		t.Error("no error")
	}
	if _, err := call(t, tr, s, "2", "other", ""); err != nil { // does not count
		t.Error(err)
	}
	tr.Flush()
	if want := []string{"GET 2 0", "PATCH 1 77"}; !slices.Equal(s.got, want) {
		t.Errorf("the server gets %v", s.got)
	}
	if f := tr.Strikes()[0].Fate; f != Refused {
		t.Errorf("the write that the server refused was %s", f)
	}
	tr.Calm()
	if code, err := call(t, tr, s, "3", "p", strings.Replace(claim, `"a"`, `"b"`, 1)); code != 200 || err != nil || len(tr.Strikes()) != 1 {
		t.Errorf("struck after Calm: %d %v", code, err)
	}
}

// One seed strikes the same writes, whatever comes between; another others.
func TestRandomIsBySeed(t *testing.T) {
	decide := func(seed uint64, skip int) string {
		plan := Random(seed, map[Kind]float64{Claim: 0.5}, time.Second)
		var all []string
		for i := range 100 {
			if i%2 == skip {
				plan(Write{Kind: Claim, Sandbox: "other", Nth: i})
			}
			all = append(all, fmt.Sprint(plan(Write{Kind: Claim, Object: fmt.Sprint(skip), Sandbox: "a", Nth: i})))
		}
		return strings.Join(all, " ")
	}
	if decide(1, 0) != decide(1, 1) || decide(1, 0) == decide(2, 0) {
		t.Error("not by seed")
	}
	if d := Random(1, map[Kind]float64{Claim: 1}, 0)(Write{Kind: Stop}); d.Fault != None {
		t.Errorf("a write without a chance gets %v", d)
	}
}
