package inuse

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"
)

// fakeEnvoy is an admin socket whose answer tests set.
type fakeEnvoy struct {
	mu     sync.Mutex
	status int
	text   string
	polls  chan struct{} // one for each answer given
}

func newFakeEnvoy(t *testing.T) (*fakeEnvoy, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "admin.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeEnvoy{status: http.StatusOK, polls: make(chan struct{}, 100)}
	server := &http.Server{Handler: f}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { _ = server.Close(); serving.Wait() })
	return f, socket
}

func (f *fakeEnvoy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.URL.Path != "/clusters" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.WriteHeader(f.status)
	fmt.Fprint(w, f.text)
	select {
	case f.polls <- struct{}{}:
	default:
	}
}

// open sets the addresses with open requests; no call of it may follow another
// before a poll.
func (f *fakeEnvoy) open(status int, addrs ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status, f.text = status, "sandbox::observability_name::sandbox\n"
	for _, a := range addrs {
		f.text += fmt.Sprintf("sandbox::%s::rq_active::1\n", netip.AddrPortFrom(netip.MustParseAddr(a), 8000))
	}
}

// claimsOf is Claims by a map from address to "id/claim".
type claimsOf map[string][2]string

func (c claimsOf) RangeClaims(f func(netip.Addr, string, string, string) bool) {
	for addr, k := range c {
		if !f(netip.MustParseAddr(addr), "ns", k[0], k[1]) {
			return
		}
	}
}

func TestPoll(t *testing.T) {
	envoy, socket := newFakeEnvoy(t)
	now := newNow()
	r := NewRegistry(now.Now)
	claims := claimsOf{"198.18.0.5": {"a", "1"}, "fd00::6": {"b", "1"}, "198.18.0.7": {"c", "1"}}
	p := NewEnvoyPoller(PollerOptions{Registry: r, Claims: []Claims{claims}, AdminSocket: socket, Tick: 10 * time.Second, Log: slog.New(slog.DiscardHandler)})
	var cursor uint64
	for _, tick := range []struct {
		name   string
		status int
		open   []string
		known  bool
		want   string
	}{
		{"nothing open", 200, nil, true, ""},
		{"two open", 200, []string{"198.18.0.5", "fd00::6"}, true, "a/1 0s, b/1 0s"},
		{"one still open", 200, []string{"198.18.0.5"}, true, "a/1 0s, b/1 0s"}, // b ended since: in use till now
		{"the same", 200, []string{"198.18.0.5"}, true, "a/1 0s"},
		{"of nobody's", 200, []string{"198.18.0.99"}, true, "a/1 0s"},
		{"unreadable", 500, []string{"198.18.0.7"}, false, ""},
		{"still unreadable", 500, nil, false, ""},
		{"readable", 200, []string{"198.18.0.7"}, true, "c/1 0s"},
		{"unreadable again", 503, nil, false, ""},
		{"ended meanwhile", 200, nil, true, "c/1 0s"},
		{"quiet", 200, nil, true, ""},
	} {
		now.step(10 * time.Second)
		envoy.open(tick.status, tick.open...)
		_ = p.Refresh(t.Context())
		report := r.LastActive(cursor)
		cursor = report.Cursor
		if got := lines(report); got != tick.want || report.Known != tick.known {
			t.Errorf("%s: %q, known %v; want %q, %v", tick.name, got, report.Known, tick.want, tick.known)
		}
	}
	// What was read goes stale when no tick follows.
	now.step(29 * time.Second)
	if !r.LastActive(cursor).Known {
		t.Error("not known although the last tick is less than three ago")
	}
	now.step(time.Second)
	if r.LastActive(cursor).Known {
		t.Error("known although no tick came for three")
	}
	reg := prometheus.NewRegistry()
	if err := p.RegisterMetrics(reg); err != nil {
		t.Fatal(err)
	}
	if families, err := reg.Gather(); err != nil || len(families) != 5 {
		t.Errorf("%d metric families, %v", len(families), err)
	}
}

// A sandbox with as many requests open as it may have is full until a look shows
// fewer, or Envoy cannot be read; all its ports count together.
func TestPollMarksFullSandboxes(t *testing.T) {
	envoy, socket := newFakeEnvoy(t)
	r := NewRegistry(newNow().Now)
	claims := claimsOf{"198.18.0.5": {"a", "1"}, "198.18.0.6": {"b", "1"}}
	o := PollerOptions{Registry: r, Claims: []Claims{claims}, AdminSocket: socket, MaxOpen: func(string) int { return 3 }, Log: slog.New(slog.DiscardHandler)}
	p := NewEnvoyPoller(o)
	const a, b = "198.18.0.5", "198.18.0.6"
	for _, tick := range []struct {
		status       int
		open         []string
		fullA, fullB bool
	}{
		{200, []string{a, a, b}, false, false},
		{200, []string{a, a, a, b}, true, false},
		{200, []string{a, a, a, a, b, b, b}, true, true},
		{200, []string{a, a, b, b, b}, false, true},
		{500, nil, false, false},
		{200, []string{b, b, b}, false, true},
		{200, nil, false, false},
	} {
		envoy.open(tick.status, tick.open...)
		_ = p.Refresh(t.Context())
		if gotA, gotB := r.ClaimUse("a", "1").Full(), r.ClaimUse("b", "1").Full(); gotA != tick.fullA || gotB != tick.fullB {
			t.Errorf("%d %v: full %v, %v; want %v, %v", tick.status, tick.open, gotA, gotB, tick.fullA, tick.fullB)
		}
	}
	o.MaxOpen = nil
	envoy.open(200, a, a, a, a)
	if err := NewEnvoyPoller(o).Refresh(t.Context()); err != nil || r.ClaimUse("a", "1").Full() {
		t.Errorf("full without a limit, %v", err)
	}
}

func TestStart(t *testing.T) {
	envoy, socket := newFakeEnvoy(t)
	envoy.open(200, "198.18.0.5")
	ticks := clocktesting.NewFakeClock(time.Unix(0, 0))
	r := NewRegistry(nil)
	p := NewEnvoyPoller(PollerOptions{Registry: r, Claims: []Claims{claimsOf{"198.18.0.5": {"a", "1"}}}, AdminSocket: socket, Tick: time.Minute, Clock: ticks})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	<-envoy.polls // at once
	for range 3 {
		ticks.Step(time.Minute)
		<-envoy.polls
	}
	stop()
	running.Wait()
	if report := r.LastActive(0); report.Known || len(report.Entries) != 1 {
		t.Errorf("after the stop: %+v", report)
	}
	if p.NeedLeaderElection() {
		t.Error("only the leader would poll")
	}
}

func TestNoEnvoy(t *testing.T) {
	r := NewRegistry(nil)
	p := NewEnvoyPoller(PollerOptions{Registry: r, Claims: []Claims{claimsOf{}}, AdminSocket: filepath.Join(t.TempDir(), "none"), Log: slog.New(slog.DiscardHandler)})
	r.setKnown(time.Hour)
	_ = p.Refresh(t.Context())
	if r.LastActive(0).Known {
		t.Error("known without an Envoy")
	}
}

func BenchmarkPoll(b *testing.B) {
	claims := claimsOf{}
	addr := netip.MustParseAddr("198.18.0.0")
	for i := range 10_000 {
		addr = addr.Next()
		claims[addr.String()] = [2]string{fmt.Sprint("s", i), "c"}
	}
	active, connections, err := parseActive(bytes.NewReader(manyClusters(10_000, 10_000)), "sandbox")
	if err != nil {
		b.Fatal(err)
	}
	p := NewEnvoyPoller(PollerOptions{Registry: NewRegistry(nil), Claims: []Claims{claims}, AdminSocket: "unused"})
	b.Run("use", func(b *testing.B) {
		for b.Loop() {
			p.noteUse(active, connections)
		}
	})
}

// Before all is listed what Envoy has open may be anybody's: nothing is known.
func TestPollBeforeAllIsListed(t *testing.T) {
	envoy, socket := newFakeEnvoy(t)
	r := NewRegistry(newNow().Now)
	claims, synced := claimsOf{}, false
	p := NewEnvoyPoller(PollerOptions{Registry: r, Claims: []Claims{claims}, Synced: func() bool { return synced }, AdminSocket: socket, Log: slog.New(slog.DiscardHandler)})
	envoy.open(http.StatusOK, "198.18.0.5")
	if err := p.Refresh(t.Context()); err == nil || r.LastActive(0).Known {
		t.Errorf("not listed: %v, known %v", err, r.LastActive(0).Known)
	}
	claims["198.18.0.5"], synced = [2]string{"a", "1"}, true
	if err := p.Refresh(t.Context()); err != nil || !r.LastActive(0).Known || lines(r.LastActive(0)) != "a/1 0s" {
		t.Errorf("listed: %v, %q", err, lines(r.LastActive(0)))
	}
}

// A request that stays open is use of the claim that it was answered for, also once nothing
// names that claim any more: the route is dropped, and the watch has not shown the pod yet.
func TestOpenRequestOfADroppedRoute(t *testing.T) {
	envoy, socket := newFakeEnvoy(t)
	now := newNow()
	r := NewRegistry(now.Now)
	claims := claimsOf{"198.18.0.5": {"a", "1"}}
	p := NewEnvoyPoller(PollerOptions{Registry: r, Claims: []Claims{claims}, AdminSocket: socket, Log: slog.New(slog.DiscardHandler)})
	for _, step := range []struct {
		name string
		open []string
		want string
	}{
		{"open", []string{"198.18.0.5"}, "a/1 0s"},
		{"dropped", []string{"198.18.0.5"}, "a/1 0s"},
		{"still open", []string{"198.18.0.5"}, "a/1 0s"},
		{"closed", nil, "a/1 0s"}, // in use till now
		{"quiet", nil, "a/1 1s"},
	} {
		now.step(time.Second)
		envoy.open(http.StatusOK, step.open...)
		if err := p.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := lines(r.LastActive(0)); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
		delete(claims, "198.18.0.5")
	}
}
