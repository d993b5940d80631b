package restapi

import (
	"context"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
	"github.com/sandlane/sandlane/gateway/restapi/idempotency"
	"github.com/sandlane/sandlane/test/bubble"
)

const base = `{"templateID":"base"}`

func createWith(t *testing.T, s *Server, path, key, idempotency, body string) *httptest.ResponseRecorder {
	t.Helper()
	return ask(t, s, "POST", path, key, body, "Idempotency-Key", idempotency)
}

func idOf(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	return read[api.Sandbox](t, w).SandboxID
}

// Many requests of one key at once, and more of them later, make one sandbox and
// all get its answer.
func TestOneKeyOneSandbox(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake()
		proceed := make(chan struct{})
		f.create = func(context.Context, NewSandbox) error { <-proceed; return nil }
		s := newServer(t, f, nil)
		var wg sync.WaitGroup
		answers := make([]string, 20)
		for i := range answers {
			wg.Go(func() {
				w := createWith(t, s, "/v2/sandboxes", keyA, "one", base)
				if w.Code != 201 {
					t.Errorf("%d %s", w.Code, w.Body)
				}
				answers[i] = idOf(t, w)
			})
		}
		synctest.Wait() // all but one wait for that one
		other := createWith(t, s, "/v2/sandboxes", keyA, "one", `{"templateID":"base","timeout":7}`)
		if other.Code != 409 {
			t.Errorf("another body while it runs: %d", other.Code)
		}
		close(proceed)
		wg.Wait()
		time.Sleep(idempotency.Lifetime - time.Second)
		answers = append(answers, idOf(t, createWith(t, s, "/v2/sandboxes", keyA, "one", `{ "templateID" : "base" }`)))
		for _, id := range answers {
			if id != answers[0] || id == "" {
				t.Fatalf("answers %v", answers)
			}
		}
		if len(f.made) != 1 {
			t.Errorf("made %d sandboxes", len(f.made))
		}
		for what, w := range map[string]*httptest.ResponseRecorder{
			"another body": createWith(t, s, "/v2/sandboxes", keyA, "one", `{"templateID":"default"}`),
			"another path": createWith(t, s, "/sandboxes", keyA, "one", base),
		} {
			if w.Code != 409 {
				t.Errorf("%s: %d", what, w.Code)
			}
		}
		time.Sleep(time.Second)
		if id := idOf(t, createWith(t, s, "/v2/sandboxes", keyA, "one", base)); id == answers[0] {
			t.Error("the answer was kept for more than a day")
		}
	})
}

// Keys are a team's own, and no key means nothing to two requests without one.
func TestKeysAreATeamsOwn(t *testing.T) {
	f := newFake()
	s := newServer(t, f, func(o *Options) {
		o.Keys = fakeKeys{keyA: {Team: "a", Namespace: "a"}, keyB: {Team: "b", Namespace: "a"}, "e2b_2": {Team: "a", Namespace: "a", KeyID: "2"}}
	})
	a := idOf(t, createWith(t, s, "/v2/sandboxes", keyA, "k", base))
	if b := idOf(t, createWith(t, s, "/v2/sandboxes", keyB, "k", base)); a == b {
		t.Error("another team got team a's sandbox")
	}
	if again := idOf(t, createWith(t, s, "/v2/sandboxes", "e2b_2", "k", base)); a != again {
		t.Error("the team's other API key got another sandbox")
	}
	first, second := ask(t, s, "POST", "/v2/sandboxes", keyA, base), ask(t, s, "POST", "/v2/sandboxes", keyA, base)
	if idOf(t, first) == idOf(t, second) {
		t.Error("one sandbox for two requests without a key")
	}
}

// What failed is not remembered: requests that wait get the failure, the next one tries.
func TestFailuresAreForgotten(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake()
		proceed, fail := make(chan struct{}), true
		f.create = func(context.Context, NewSandbox) error {
			<-proceed
			if fail {
				return ErrNoCapacity
			}
			return nil
		}
		s := newServer(t, f, nil)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if w := createWith(t, s, "/v2/sandboxes", keyA, "k", base); w.Code != 503 {
					t.Errorf("%d", w.Code)
				}
			})
		}
		synctest.Wait()
		close(proceed)
		wg.Wait()
		fail = false
		if w := createWith(t, s, "/v2/sandboxes", keyA, "k", base); w.Code != 201 {
			t.Errorf("the next try: %d", w.Code)
		}
		if len(f.made) != 2 {
			t.Errorf("tried %d times, want 2", len(f.made))
		}
	})
}

// A client that leaves takes only its own create with it: one that waits makes
// the sandbox. One that leaves while it waits takes nothing with it.
func TestDesertedCreates(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake()
		proceed := make(chan struct{})
		f.create = func(ctx context.Context, _ NewSandbox) error {
			select {
			case <-proceed:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		s := newServer(t, f, nil)
		start := func(ctx context.Context) chan *httptest.ResponseRecorder {
			answer := make(chan *httptest.ResponseRecorder, 1)
			go func() {
				r := httptest.NewRequest("POST", "/v2/sandboxes", bodyOf(base)).WithContext(ctx)
				answer <- askWith(t, s, r, keyA, "Idempotency-Key", "k")
			}()
			synctest.Wait()
			return answer
		}
		first, leaveFirst := context.WithCancel(t.Context())
		second, leaveSecond := context.WithCancel(t.Context())
		gone, waited, served := start(first), start(second), start(t.Context())
		leaveSecond()
		if w := <-waited; w.Code != statusClientGone {
			t.Errorf("the client that left: %d", w.Code)
		}
		leaveFirst()
		if w := <-gone; w.Code != statusClientGone {
			t.Errorf("the client that left: %d", w.Code)
		}
		synctest.Wait()
		close(proceed)
		if w := <-served; w.Code != 201 {
			t.Errorf("the client that stayed: %d %s", w.Code, w.Body)
		}
		if len(f.made) != 2 {
			t.Errorf("tried %d times, want 2", len(f.made))
		}
	})
}

// A panic leaves no key behind that can never be used.
func TestPanicFreesTheKey(t *testing.T) {
	f := newFake()
	f.create = func(context.Context, NewSandbox) error { panic("x") }
	s := newServer(t, f, nil)
	if w := createWith(t, s, "/v2/sandboxes", keyA, "k", base); w.Code != 500 {
		t.Errorf("%d", w.Code)
	}
	f.create = nil
	if w := createWith(t, s, "/v2/sandboxes", keyA, "k", base); w.Code != 201 {
		t.Errorf("afterwards: %d", w.Code)
	}
}
