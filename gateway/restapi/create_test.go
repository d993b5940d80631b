package restapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/bubble"
)

// The end is the timeout away from when the sandbox is ready, however long that
// took, and never before.
func TestEndCountsFromReady(t *testing.T) {
	for _, c := range []struct {
		timeout, body string
		path          string
		wait, want    time.Duration
		moves         int
	}{
		{"default", base, "/v2/sandboxes", 0, 300 * time.Second, 0},
		{"default, after a wait", base, "/v2/sandboxes", 40 * time.Second, 300 * time.Second, 1},
		{"default, in a burst", base, "/v2/sandboxes", 3 * time.Second, 297 * time.Second, 0},
		{"default, just too late", base, "/v2/sandboxes", 5 * time.Second, 300 * time.Second, 1},
		{"old default", base, "/sandboxes", 0, 15 * time.Second, 1},
		{"old default, after a longer wait", base, "/sandboxes", 40 * time.Second, 15 * time.Second, 1},
		{"old default, when the first end is right", base, "/sandboxes", 45 * time.Second, 15 * time.Second, 0},
		{"the longest", `{"templateID":"base","timeout":3600}`, "/v2/sandboxes", 0, time.Hour, 0},
	} {
		t.Run(c.timeout, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := newFake()
				var firstEnd time.Time
				f.create = func(_ context.Context, n NewSandbox) error {
					firstEnd = n.EndAt
					time.Sleep(c.wait)
					return nil
				}
				w := ask(t, newServer(t, f, nil), "POST", c.path, keyA, c.body)
				if w.Code != 201 || len(f.moved) != c.moves {
					t.Fatalf("%d %s, the end moved %d times, want %d", w.Code, w.Body, len(f.moved), c.moves)
				}
				if got := time.Until(f.sandboxes[idOf(t, w)].EndAt); got < c.want || got > c.want+time.Second {
					t.Errorf("ends in %v, want %v", got, c.want)
				}
				if firstEnd.Before(time.Now()) {
					t.Errorf("its first end passed %v before it was ready", time.Since(firstEnd))
				}
			})
		})
	}
}

// A sandbox whose end could not be set is not left behind.
func TestEndThatCannotBeSet(t *testing.T) {
	f := newFake()
	f.setEnd = errors.New("the API server is away")
	w := ask(t, newServer(t, f, nil), "POST", "/sandboxes", keyA, base)
	if w.Code != 500 || w.Header().Get("Should-Retry") != "" || len(f.ended) != 1 || f.ended[0] != f.made[0].ID {
		t.Errorf("%d %s, ended %v", w.Code, w.Body, f.ended)
	}
	f.setEnd = ErrNotFound
	if w := ask(t, newServer(t, f, nil), "POST", "/sandboxes", keyA, base); w.Code != 500 {
		t.Errorf("a create was answered with %d %s", w.Code, w.Body)
	}
}

// The wait for a pod ends before SDKs give up.
func TestCreateDeadline(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake()
		f.create = func(ctx context.Context, _ NewSandbox) error { <-ctx.Done(); return ctx.Err() }
		started := time.Now()
		w := ask(t, newServer(t, f, nil), "POST", "/v2/sandboxes", keyA, base)
		if took := time.Since(started); w.Code != 504 || took != 50*time.Second {
			t.Errorf("%d after %v", w.Code, took)
		}
	})
}

// A client that leaves as the sandbox is ready never hears of it: it is ended,
// unless a later request of the same key can get it.
func TestClientLeavesAtTheEnd(t *testing.T) {
	for key, ended := range map[string]int{"": 1, "k": 0} {
		f := newFake()
		ctx, leave := context.WithCancel(t.Context())
		f.create = func(context.Context, NewSandbox) error { leave(); return nil }
		s := newServer(t, f, nil)
		r := httptest.NewRequest("POST", "/v2/sandboxes", bodyOf(base)).WithContext(ctx)
		var headers []string
		if key != "" {
			headers = []string{"Idempotency-Key", key}
		}
		askWith(t, s, r, keyA, headers...)
		if len(f.ended) != ended {
			t.Errorf("key %q: ended %v", key, f.ended)
		}
		if key == "" {
			continue
		}
		if id := idOf(t, createWith(t, s, "/v2/sandboxes", keyA, key, base)); id != f.made[0].ID {
			t.Errorf("the next request got %s, not %s", id, f.made[0].ID)
		}
	}
}

// Timeouts shorten, connects and refreshes do not; nothing goes beyond the longest
// life, or gives an end to a sandbox that has none.
func TestEnds(t *testing.T) { bubble.Test(t, testEnds) }

func testEnds(t *testing.T) {
	time.Sleep(300 * time.Millisecond) // ends are kept to the second, and rounded up
	started := time.Now().Add(-time.Minute).Truncate(time.Second)
	in := func(d time.Duration) time.Time { return time.Now().Add(d) }
	last := started.Add(time.Hour)
	for _, c := range []struct {
		request, body string
		end, want     time.Time
	}{
		{"/timeout", `{"timeout":10}`, in(time.Minute), in(10 * time.Second)},
		{"/timeout", `{"timeout":0}`, in(time.Minute), in(0)},
		{"/timeout", `{"timeout":600}`, in(time.Minute), in(10 * time.Minute)},
		{"/timeout", `{"timeout":3590}`, in(time.Minute), last},
		{"/timeout", `{"timeout":9000000000000000000}`, in(time.Minute), last},
		{"/connect", `{"timeout":10}`, in(time.Minute), in(time.Minute)},
		{"/connect", `{"timeout":600}`, in(time.Minute), in(10 * time.Minute)},
		{"/connect", `{"timeout":3600}`, in(time.Minute), last},
		{"/connect", `{"timeout":600}`, time.Time{}, time.Time{}},
		{"/refreshes", `{}`, in(time.Second), in(15 * time.Second)},
		{"/refreshes", `{"duration":1}`, in(time.Second), in(15 * time.Second)},
		{"/refreshes", `{"duration":60}`, in(2 * time.Minute), in(2 * time.Minute)},
		{"/refreshes", `{"duration":60}`, time.Time{}, time.Time{}},
	} {
		f := newFake()
		f.sandboxes["own-1"] = Sandbox{ID: "own-1", Namespace: "a", Pool: "base", StartedAt: started, EndAt: c.end}
		w := ask(t, newServer(t, f, nil), "POST", "/sandboxes/own-1"+c.request, keyA, c.body)
		got := f.sandboxes["own-1"].EndAt
		if w.Code >= 300 || got.Before(c.want) || got.Sub(c.want) >= time.Second || got.After(last) || !got.IsZero() && got != c.end && got.Nanosecond() != 0 {
			t.Errorf("%s %s: %d, ends at %v, want %v", c.request, c.body, w.Code, got, c.want)
		}
	}
}

// A timeout does not end a sandbox without an end that has run for longer than the longest life.
func TestTimeoutAfterTheLongestLife(t *testing.T) {
	f := newFake()
	f.sandboxes["own-1"] = Sandbox{ID: "own-1", Namespace: "a", Pool: "base", StartedAt: time.Now().Add(-2 * time.Hour)}
	s := newServer(t, f, nil)
	for _, body := range []string{`{"timeout":60}`, `{"timeout":9000000000000000000}`} {
		if w := ask(t, s, "POST", "/sandboxes/own-1/timeout", keyA, body); w.Code != http.StatusBadRequest || !f.sandboxes["own-1"].EndAt.IsZero() {
			t.Errorf("%s: %d, ends at %v", body, w.Code, f.sandboxes["own-1"].EndAt)
		}
	}
	if w := ask(t, s, "POST", "/sandboxes/own-1/timeout", keyA, `{"timeout":0}`); w.Code >= 300 || f.sandboxes["own-1"].EndAt.IsZero() {
		t.Errorf("0: %d, ends at %v", w.Code, f.sandboxes["own-1"].EndAt)
	}
}

// A sandbox without an end is shown with one that no SDK fails to read.
func TestNoEnd(t *testing.T) {
	f := newFake()
	f.sandboxes["own-1"] = Sandbox{ID: "own-1", Namespace: "a", Pool: "gone", StartedAt: time.Now()}
	w := ask(t, newServer(t, f, nil), "GET", "/sandboxes/own-1", keyA, "")
	d := read[map[string]any](t, w)
	if d["endAt"] != "9999-01-01T00:00:00Z" || d["templateID"] != "gone" || d["envdAccessToken"] != nil {
		t.Errorf("%v", d)
	}
}
