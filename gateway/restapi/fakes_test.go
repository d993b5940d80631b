package restapi

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/routing"
)

const (
	keyA = "e2b_aaaaaaaaaaaaaaaa" // of team a in namespace a
	keyB = "e2b_bbbbbbbbbbbbbbbb"
	idA  = "iaaaaaaaaaaaaaaaaaaaa" // a sandbox of team a
)

// fake is a gateway in memory.
type fake struct {
	mu        sync.Mutex // guards all below
	sandboxes map[string]Sandbox
	made      []NewSandbox
	ended     []string
	moved     []time.Time
	// create, if set, decides instead of making a sandbox at once.
	create func(ctx context.Context, n NewSandbox) error
	// egress are the rules of a SetEgress, by sandbox.
	egress map[string]Egress
	// setEnd, if set, fails SetEnd; pausing makes its next call find it paused just now.
	setEnd  error
	pausing bool
	// anothers, if set, is the timeout of the resume that Resume meets.
	anothers time.Duration
	// noStore: nothing can be kept of a sandbox.
	noStore bool
	metrics []Metric
	lines   []LogLine
	// version is that of all lists. One that is asked for it lacks madeSince.
	version   string
	madeSince map[string]bool
	lists     []string // the versions that lists were asked for
}

func newFake() *fake {
	start := time.Now().Add(-time.Minute).Truncate(time.Second)
	return &fake{
		egress: map[string]Egress{},
		sandboxes: map[string]Sandbox{idA: {
			ID: idA, UID: "uid-of-" + idA, Namespace: "a", Team: "a", Pool: "base", StartedAt: start, EndAt: start.Add(2 * time.Minute),
			Metadata: map[string]string{"user": "x"}, Secure: true, CPUCount: 2, MemoryMB: 512, DiskMB: 1024,
		}},
		metrics: []Metric{{At: start, CPUCount: 2, MemTotal: 7}, {At: start.Add(10 * time.Second), CPUCount: 2, MemTotal: 8}},
		lines:   []LogLine{{At: start, Text: "one"}, {At: start.Add(time.Second), Text: "two"}, {At: start.Add(2 * time.Second), Text: "three"}},
	}
}

func (f *fake) Create(ctx context.Context, n NewSandbox) (Sandbox, error) {
	f.mu.Lock()
	f.made = append(f.made, n)
	create := f.create
	f.mu.Unlock()
	if create != nil {
		if err := create(ctx, n); err != nil {
			return Sandbox{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	sandbox := Sandbox{
		ID: n.ID, UID: types.UID("uid-of-" + n.ID), Namespace: n.Namespace, Team: n.Team, Pool: n.Pool, StartedAt: time.Now(), EndAt: n.EndAt,
		Metadata: n.Metadata, Private: n.Private, Secure: n.Secure, CPUCount: 1, MemoryMB: 128,
		AutoPause: n.AutoPause, AutoResume: n.AutoResume, Snapshot: n.Snapshot,
	}
	f.sandboxes[n.ID] = sandbox
	return sandbox, nil
}

func (f *fake) Get(_ context.Context, namespace, id string) (Sandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sandbox, found := f.sandboxes[id]
	if !found || sandbox.Namespace != namespace {
		return Sandbox{}, ErrNotFound
	}
	return sandbox, nil
}

func (f *fake) List(_ context.Context, namespace, atLeast string) (Listing, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists = append(f.lists, atLeast)
	l := Listing{Version: f.version, Kept: f.version != "" && atLeast == f.version}
	for _, sandbox := range f.sandboxes {
		if sandbox.Namespace == namespace && (!l.Kept || !f.madeSince[sandbox.ID]) {
			l.Sandboxes = append(l.Sandboxes, sandbox)
		}
	}
	SortNewestFirst(l.Sandboxes)
	return l, nil
}

func (f *fake) End(ctx context.Context, namespace, id string) error {
	if _, err := f.Get(ctx, namespace, id); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sandboxes, id)
	f.ended = append(f.ended, id)
	return nil
}

func (f *fake) SetEnd(ctx context.Context, namespace, id string, at time.Time, shorten bool) (Sandbox, error) {
	sandbox, err := f.Get(ctx, namespace, id)
	if err != nil {
		return Sandbox{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.setEnd != nil {
		return Sandbox{}, f.setEnd
	}
	if f.pausing {
		sandbox.Paused, f.pausing = true, false
		f.sandboxes[id] = sandbox
	}
	if sandbox.Paused {
		return Sandbox{}, ErrPaused
	}
	f.moved = append(f.moved, at)
	if shorten || at.After(sandbox.EndAt) {
		sandbox.EndAt = at
	}
	f.sandboxes[id] = sandbox
	return sandbox, nil
}

func (f *fake) Pause(ctx context.Context, namespace, id string, memory bool) error {
	sandbox, err := f.Get(ctx, namespace, id)
	if err != nil {
		return err
	}
	if sandbox.Paused {
		return ErrNotRunning
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noStore && !memory {
		return ErrNoStore
	}
	sandbox.Paused, sandbox.Frozen, sandbox.Saved, sandbox.EndAt = true, memory, !memory, time.Now()
	f.sandboxes[id] = sandbox
	return nil
}

func (f *fake) Resume(ctx context.Context, namespace, id string, timeout time.Duration) (Sandbox, bool, error) {
	sandbox, err := f.Get(ctx, namespace, id)
	if err != nil || !sandbox.Paused {
		return sandbox, false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.anothers != 0 {
		timeout = f.anothers
	}
	sandbox.Paused, sandbox.Frozen, sandbox.Saved, sandbox.EndAt = false, false, false, time.Now().Add(timeout)
	f.sandboxes[id] = sandbox
	return sandbox, true, nil
}

func (f *fake) SetEgress(ctx context.Context, namespace, id string, e Egress) error {
	if _, err := f.Get(ctx, namespace, id); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.egress[id] = e
	return nil
}

func (f *fake) AskedEgress(_ context.Context, sandbox Sandbox) (AskedEgress, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.egress[sandbox.ID].Asked, nil
}

func (f *fake) Metrics(ctx context.Context, namespace, id string, history bool) ([]Metric, error) {
	_, err := f.Get(ctx, namespace, id)
	if !history {
		return f.metrics[len(f.metrics)-1:], err
	}
	return f.metrics, err
}

func (f *fake) Logs(ctx context.Context, namespace, id string, _ int) ([]LogLine, error) {
	_, err := f.Get(ctx, namespace, id)
	return f.lines, err
}

type fakeTemplates []Template

func (t fakeTemplates) Template(namespace, name string) (Template, bool) {
	for _, one := range t.Templates(namespace) {
		if one.ID == name || slices.Contains(one.Aliases, name) {
			return one, true
		}
	}
	return Template{}, false
}

func (t fakeTemplates) OfPool(namespace, pool string) (Template, bool) {
	for _, one := range t.Templates(namespace) {
		if pool != "" && (one.Pool == pool || one.Adopted == pool) {
			one.Pool, one.SandboxEnv, one.Adopted = pool, "", ""
			return one, true
		}
	}
	return Template{}, false
}

func (t fakeTemplates) Templates(namespace string) []Template {
	if namespace != "a" {
		return nil
	}
	return t
}

type fakeKeys map[string]routing.KeyOwner

func (k fakeKeys) Verify(_ context.Context, key string) (routing.KeyOwner, error) {
	id, found := k[key]
	if !found {
		return routing.KeyOwner{}, routing.ErrBadKey
	}
	return id, nil
}

type fakeTokens struct{}

func (fakeTokens) Envd(id string, uid types.UID) string { return "envd-of-" + id + "." + string(uid) }
func (fakeTokens) Traffic(id string, uid types.UID) string {
	return "traffic-of-" + id + "." + string(uid)
}

// newServer returns a server over a fake; change may be nil.
func newServer(t *testing.T, f *fake, change func(*Options)) *Server {
	t.Helper()
	o := Options{
		Sandboxes: f,
		Templates: fakeTemplates{
			{ID: "base", Aliases: []string{"default"}, Pool: "base", CreatedAt: time.Unix(1e9, 0), MaxLifetime: time.Hour, CPUCount: 2},
			{ID: "other", Pool: "other-pool", MaxLifetime: time.Hour},
		},
		Keys: fakeKeys{
			keyA: {Team: "a", Namespace: "a", KeyID: "aaaa"}, keyB: {Team: "b", Namespace: "b", KeyID: "bbbb"},
		},
		Tokens: fakeTokens{}, Domain: "localhost:8080", Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	s, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask sends one request and checks what holds for every answer.
func ask(t *testing.T, s *Server, method, path, key, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	return askWith(t, s, httptest.NewRequest(method, path, bodyOf(body)), key, headers...)
}

func bodyOf(body string) io.Reader {
	if body == "" {
		return nil
	}
	return strings.NewReader(body)
}

func askWith(t *testing.T, s *Server, r *http.Request, key string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	if key != "" {
		r.Header.Set("X-API-KEY", key)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	if w.Code >= 300 {
		var e struct {
			Code    int
			Message string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Code != w.Code || e.Message == "" {
			t.Errorf("%s %s: %d with the body %q, want its code and a message", r.Method, r.URL, w.Code, w.Body)
		}
	}
	return w
}

// read decodes the answer.
func read[T any](t *testing.T, w *httptest.ResponseRecorder) (v T) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("answer %d %q: %v", w.Code, w.Body, err)
	}
	return v
}
