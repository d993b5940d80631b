package restapi

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
	"github.com/sandlane/sandlane/test/bubble"
)

// What SDKs go by: the status, and the same code in the body.
func TestPauseAnswers(t *testing.T) {
	f := newFake()
	s := newServer(t, f, nil)
	for i, c := range []struct {
		method, path, body string
		status             int
		text               string
	}{
		{"POST", "/sandboxes/nosuch/pause", `{"memory":false}`, 404, "doesn't exist"},
		{"POST", "/sandboxes/nosuch/pause", `{}`, 404, "doesn't exist"},
		{"POST", "/sandboxes/{id}/resume", `{}`, 409, "already running"},
		{"POST", "/sandboxes/{id}/pause", ``, 204, ""},
		{"POST", "/sandboxes/{id}/pause", `{}`, 409, "not running"},
		{"GET", "/sandboxes/{id}", ``, 200, `"pauseMode":"full"`},
		{"GET", "/sandboxes", ``, 200, "[]\n"},
		{"GET", "/v2/sandboxes", ``, 200, `"state":"paused"`},
		{"GET", "/v2/sandboxes?state=running", ``, 200, "[]\n"},
		{"GET", "/v2/sandboxes?state=paused", ``, 200, `"state":"paused"`},
		{"POST", "/sandboxes/{id}/connect", `{"timeout":60,"memory":false}`, 400, "memory"},
		{"POST", "/sandboxes/{id}/connect", `{"timeout":-1}`, 400, ""},
		{"POST", "/sandboxes/{id}/resume", `{"memory":false}`, 400, "memory"},
		{"POST", "/sandboxes/{id}/connect", `{"timeout":60}`, 201, `"sandboxID":"{id}"`},
		{"POST", "/sandboxes/{id}/connect", `{"timeout":70}`, 200, `"sandboxID":"{id}"`},
		{"GET", "/sandboxes/{id}", ``, 200, `"state":"running"`},
		{"GET", "/v2/sandboxes?state=paused", ``, 200, "[]\n"},
		{"POST", "/sandboxes/{id}/pause", `{"memory":true,"requireHealthyGuest":true}`, 204, ""},
		{"POST", "/v2/sandboxes/{id}/connect", `{}`, 201, `"sandboxID":"{id}"`},
		{"POST", "/sandboxes/{id}/pause", `{}`, 204, ""},
		{"POST", "/sandboxes/{id}/resume", `{"timeout":60,"autoPause":true}`, 400, "autoPause"},
		{"POST", "/sandboxes/{id}/resume", `{"timeout":60}`, 201, `"sandboxID":"{id}"`},
		{"POST", "/sandboxes/{id}/pause", `{"memory":false}`, 204, ""},
		{"POST", "/sandboxes/{id}/pause", `{"memory":false}`, 409, "not running"},
		{"GET", "/sandboxes/{id}", ``, 200, `"pauseMode":"filesystem"`},
		{"POST", "/sandboxes/{id}/connect", `{"timeout":60,"memory":false}`, 201, `"sandboxID":"{id}"`},
		{"POST", "/sandboxes/{id}/pause", `{}`, 204, ""},
		{"DELETE", "/sandboxes/{id}", ``, 204, ""},
		{"POST", "/sandboxes/{id}/pause", `{}`, 404, "doesn't exist"},
	} {
		fill := strings.NewReplacer("{id}", idA)
		w := ask(t, s, c.method, fill.Replace(c.path), keyA, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), fill.Replace(c.text)) {
			t.Errorf("%d: %s %s %s: %d %s, want %d with %s", i, c.method, c.path, c.body, w.Code, w.Body, c.status, c.text)
		}
		if c.status >= 400 && read[api.Error](t, w).Code != c.status {
			t.Errorf("%d: %s does not repeat the code", i, w.Body)
		}
	}
}

// E2B's word for what is kept; one that runs, or whose files are being saved, has none.
func TestPauseMode(t *testing.T) {
	for want, sandbox := range map[string]Sandbox{
		`"pauseMode":"full"`:       {Paused: true, Frozen: true},
		`"pauseMode":"filesystem"`: {Paused: true, Saved: true},
		"saving":                   {Paused: true},
		"running":                  {},
	} {
		f := newFake()
		sandbox.ID, sandbox.Namespace, sandbox.Pool = idA, "a", "base"
		f.sandboxes[idA] = sandbox
		body := ask(t, newServer(t, f, nil), "GET", "/sandboxes/"+idA, keyA, "").Body.String()
		if named := strings.HasPrefix(want, `"`); named && !strings.Contains(body, want) || !named && strings.Contains(body, "pauseMode") {
			t.Errorf("%s: %s", want, body)
		}
	}
}

// Without a folder for files a pause that gives the memory up is not supported.
func TestPauseWithoutAStore(t *testing.T) {
	f := newFake()
	f.noStore = true
	s := newServer(t, f, nil)
	w := ask(t, s, "POST", "/sandboxes/"+idA+"/pause", keyA, `{"memory":false}`)
	if w.Code != 501 || !strings.Contains(w.Body.String(), "--checkpoint-dir") || f.sandboxes[idA].Paused {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(t, s, "POST", "/sandboxes/"+idA+"/pause", keyA, `{}`); w.Code != 204 {
		t.Errorf("with the memory: %d %s", w.Code, w.Body)
	}
}

// A connect resumes also what is paused between its look and its write; a timeout is
// answered as for what is not there, or 409 while the files are kept or restored.
func TestConnectOfWhatIsPausedMeanwhile(t *testing.T) {
	f := newFake()
	s := newServer(t, f, nil)
	f.pausing = true
	if w := ask(t, s, "POST", "/sandboxes/"+idA+"/timeout", keyA, `{"timeout":600}`); w.Code != 404 {
		t.Errorf("timeout: %d %s", w.Code, w.Body)
	}
	for _, err := range []error{ErrPausing, ErrResuming} {
		f.setEnd = fmt.Errorf("set the end: %w", err)
		if w := ask(t, s, "POST", "/sandboxes/"+idA+"/timeout", keyA, `{"timeout":600}`); w.Code != 409 {
			t.Errorf("%v: %d %s", err, w.Code, w.Body)
		}
	}
	f = newFake()
	s = newServer(t, f, nil)
	f.pausing = true
	if w := ask(t, s, "POST", "/sandboxes/"+idA+"/connect", keyA, `{"timeout":600}`); w.Code != 201 || f.sandboxes[idA].Paused {
		t.Errorf("connect: %d %s", w.Code, w.Body)
	}
	f.setEnd = ErrPaused // at each look it is paused, and at each resume it runs
	if w := ask(t, s, "POST", "/sandboxes/"+idA+"/connect", keyA, `{"timeout":3000}`); w.Code != 409 {
		t.Errorf("connect to one that is paused again and again: %d %s", w.Code, w.Body)
	}
}

// A resume gives exactly the timeout, however long the sandbox had run before, and the
// longest life counts from it.
func TestResumeGivesTheTimeout(t *testing.T) {
	f := newFake()
	s := newServer(t, f, nil)
	sandbox := f.sandboxes[idA]
	sandbox.StartedAt, sandbox.Paused = time.Now().Add(-72*time.Hour), true
	f.sandboxes[idA] = sandbox
	if w := ask(t, s, "POST", "/sandboxes/"+idA+"/connect", keyA, `{"timeout":60}`); w.Code != 201 {
		t.Fatalf("connect: %d %s", w.Code, w.Body)
	}
	if left := time.Until(f.sandboxes[idA].EndAt); left < 55*time.Second || left > 61*time.Second {
		t.Errorf("it ends in %s", left)
	}
	sandbox = f.sandboxes[idA]
	sandbox.ResumedAt = time.Now()
	f.sandboxes[idA] = sandbox
	if w := ask(t, s, "POST", "/sandboxes/"+idA+"/timeout", keyA, `{"timeout":600}`); w.Code != 204 {
		t.Fatalf("timeout: %d %s", w.Code, w.Body)
	}
	if left := time.Until(f.sandboxes[idA].EndAt); left < 595*time.Second {
		t.Errorf("it ends in %s", left)
	}
}

// A connect, or a resume, that meets the resume of another request gives the sandbox its own
// timeout too, and takes nothing from the other's.
func TestResumesThatMeet(t *testing.T) {
	for _, call := range []string{"connect", "resume"} {
		for anothers, want := range map[time.Duration]time.Duration{time.Minute: 10 * time.Minute, time.Hour: time.Hour} {
			f := newFake()
			s := newServer(t, f, nil)
			sandbox := f.sandboxes[idA]
			sandbox.Paused, f.anothers = true, anothers
			f.sandboxes[idA] = sandbox
			w := ask(t, s, "POST", "/sandboxes/"+idA+"/"+call, keyA, `{"timeout":600}`)
			if left := time.Until(f.sandboxes[idA].EndAt); w.Code != 201 || left < want-10*time.Second || left > want+2*time.Second {
				t.Errorf("%s beside one for %s: %d %s, and it ends in %s", call, anothers, w.Code, w.Body, left)
			}
			if moved := len(f.moved); (moved > 0) != (anothers < want) {
				t.Errorf("%s beside one for %s: its end was moved %d times", call, anothers, moved)
			}
		}
	}
}

// slow has calls wait until go on is closed, and counts them.
type slow struct {
	*fake
	goOn  chan struct{}
	calls *atomic.Int32
}

func (f slow) Pause(ctx context.Context, namespace, id string, memory bool) error {
	f.calls.Add(1)
	<-f.goOn
	return f.fake.Pause(ctx, namespace, id, memory)
}

func (f slow) Resume(ctx context.Context, namespace, id string, timeout time.Duration) (Sandbox, bool, error) {
	f.calls.Add(1)
	<-f.goOn
	return f.fake.Resume(ctx, namespace, id, timeout)
}

// Pauses of one moment are one pause, and resumes one resume, for all who asked; the longest
// timeout counts. Another team's call is not one of them.
func TestPausesAndResumesAtOnce(t *testing.T) {
	for _, c := range []struct {
		call, body string
		paused     bool
		status     int
	}{
		{"pause", `{}`, false, 204}, {"pause", `{"memory":false}`, false, 204}, {"resume", `{"timeout":%d}`, true, 201},
		{"connect", `{"timeout":%d}`, true, 201},
	} {
		bubble.Test(t, func(t *testing.T) {
			f := slow{newFake(), make(chan struct{}), &atomic.Int32{}}
			sandbox := f.sandboxes[idA]
			sandbox.Paused, sandbox.EndAt = c.paused, time.Now()
			f.sandboxes[idA] = sandbox
			s := newServer(t, f.fake, func(o *Options) { o.Sandboxes = f })
			var asking sync.WaitGroup
			for i := range 8 {
				asking.Go(func() {
					body := c.body
					if c.paused {
						body = fmt.Sprintf(c.body, 60+i)
					}
					if w := ask(t, s, "POST", "/sandboxes/"+idA+"/"+c.call, keyA, body); w.Code != c.status {
						t.Errorf("%s: %d %s", c.call, w.Code, w.Body)
					}
				})
			}
			synctest.Wait()
			close(f.goOn)
			asking.Wait()
			if f.calls.Load() != 1 {
				t.Errorf("%s: %d calls", c.call, f.calls.Load())
			}
			if left := time.Until(f.sandboxes[idA].EndAt); c.paused && left < 67*time.Second {
				t.Errorf("%s: it ends in %s", c.call, left)
			}
			if w := ask(t, s, "POST", "/sandboxes/"+idA+"/pause", keyB, `{}`); w.Code != 404 {
				t.Errorf("of another team: %d %s", w.Code, w.Body)
			}
		})
	}
}

// A resume that finds the sandbox paused is 201 also if another has resumed it before.
func TestResumeOfWhatIsResumedMeanwhile(t *testing.T) {
	f := newFake()
	s := newServer(t, f, func(o *Options) { o.Sandboxes = resumedMeanwhile{f} })
	sandbox := f.sandboxes[idA]
	sandbox.Paused = true
	f.sandboxes[idA] = sandbox
	if w := ask(t, s, "POST", "/sandboxes/"+idA+"/resume", keyA, `{"timeout":600}`); w.Code != 201 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if left := time.Until(f.sandboxes[idA].EndAt); left < 590*time.Second {
		t.Errorf("it ends in %s", left)
	}
	if w := ask(t, s, "POST", "/sandboxes/"+idA+"/resume", keyA, `{"timeout":600}`); w.Code != 409 {
		t.Errorf("of one that runs: %d %s", w.Code, w.Body)
	}
}

// resumedMeanwhile has another request resume a sandbox right before Resume does.
type resumedMeanwhile struct{ *fake }

func (f resumedMeanwhile) Resume(ctx context.Context, namespace, id string, timeout time.Duration) (Sandbox, bool, error) {
	if _, _, err := f.fake.Resume(ctx, namespace, id, time.Second); err != nil {
		return Sandbox{}, false, err
	}
	return f.fake.Resume(ctx, namespace, id, timeout)
}

// Pages of a state are whole, in order, and without those of the other.
func TestPagesByState(t *testing.T) {
	f := newFake()
	s := newServer(t, f, nil)
	delete(f.sandboxes, idA)
	for i := range 25 {
		id := fmt.Sprintf("i%020d", i)
		f.sandboxes[id] = Sandbox{ID: id, Namespace: "a", Pool: "base", StartedAt: time.Unix(int64(1000+i), 0), Paused: i%3 == 0}
	}
	for state, want := range map[string]int{"paused": 9, "running": 16, "running,paused": 25} {
		var seen []string
		for token := ""; ; {
			w := ask(t, s, "GET", "/v2/sandboxes?limit=4&state="+state+"&nextToken="+token, keyA, "")
			for _, one := range read[[]api.ListedSandbox](t, w) {
				seen = append(seen, one.SandboxID)
				if !strings.Contains(state, string(one.State)) {
					t.Errorf("%s: a %s one is listed", state, one.State)
				}
			}
			total, wants := w.Header().Get("X-Total-Running"), state != "paused"
			if (total != "") != wants || wants && total != "16" {
				t.Errorf("%s: X-Total-Running is %q", state, total)
			}
			if token = w.Header().Get("X-Next-Token"); token == "" {
				break
			}
		}
		if len(seen) != want || seen[0] < seen[len(seen)-1] {
			t.Errorf("%s: %d, %v", state, len(seen), seen)
		}
	}
}
