package gateway

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/inuse"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/test/bubble"
)

// shown stands in for the table: it notes what it is told.
type shown struct {
	routes map[string]bool
	steps  []string
	wait   error
}

func (s *shown) Publish(r *routecache.Route) { s.routes[r.SandboxID] = true; r.SetSlot(1) }
func (s *shown) Retract(r *routecache.Route) {
	delete(s.routes, r.SandboxID)
	r.SetSlot(0)
	s.steps = append(s.steps, "removed")
}
func (s *shown) Used(*routecache.Route) bool    { return false }
func (s *shown) Wait(ctx context.Context) error { s.steps = append(s.steps, "waited"); return s.wait }

func showing(t *testing.T, routes ...*routecache.Route) (*routecache.Cache, *shown) {
	t.Helper()
	c, s := routecache.New(0), &shown{routes: map[string]bool{}}
	c.SetMirror(s)
	for _, r := range routes {
		if !c.Put(c.Begin(r.SandboxID), r) {
			t.Fatal("refused")
		}
	}
	return c, s
}

func routeOf(id, pool string, use *routecache.ClaimUse) *routecache.Route {
	return &routecache.Route{SandboxID: id, ClaimID: "c", PodUID: "u", Pool: routecache.PoolOf("default", pool),
		Addr: netip.MustParseAddr("198.18.0.5"), PodRV: 1, Use: use}
}

// oneClaim is an index of the claim of one sandbox.
type oneClaim struct{}

func (oneClaim) RangeClaims(f func(netip.Addr, string, string, string) bool) {
	f(netip.MustParseAddr("198.18.0.5"), "default", "open", "c")
}

// serveClusters is an Envoy with one request open.
func serveClusters(t *testing.T, asked func()) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "admin.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	envoy := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked()
		_, _ = w.Write([]byte("sandbox::198.18.0.5:8000::rq_active::1\n"))
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = envoy.Serve(l) }()
	t.Cleanup(func() { _ = envoy.Close(); <-done })
	return socket
}

// A sandbox that has as many requests open as it may leaves the table, so that ExtProc
// refuses further ones.
func TestFullSandboxLeavesTheTable(t *testing.T) {
	usage := inuse.NewRegistry(nil)
	use := usage.ClaimUse("open", "c")
	cache, table := showing(t, routeOf("open", "p", use))
	poller := inuse.NewEnvoyPoller(inuse.PollerOptions{
		Registry: usage, Claims: []inuse.Claims{oneClaim{}}, AdminSocket: serveClusters(t, func() {}), Tick: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
		MaxOpen: func(string) int { return 1 }, Filled: func(id string) {
			if !use.Full() {
				t.Error("told before the use says so")
			}
			cache.Retract(id)
		},
	})
	if err := poller.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if table.routes["open"] || !use.Full() {
		t.Errorf("in the table: %v, full: %v", table.routes["open"], use.Full())
	}
}

type reaches map[string]v1alpha1.FirstRequestReach

func (r reaches) Reach(_, pool string) v1alpha1.FirstRequestReach { return r[pool] }

// When requests for a pool's sandboxes must show more, or less, its routes leave the
// table, and those of other pools stay. A change of something else moves nothing.
func TestReachChangesEmptyTheTable(t *testing.T) {
	cache, table := showing(t, routeOf("one", "first", new(routecache.ClaimUse)), routeOf("two", "second", new(routecache.ClaimUse)))
	reach := reaches{"first": v1alpha1.ReachPublic, "second": v1alpha1.ReachPublic}
	f := &fastPath{index: reach, cache: cache, reach: map[routecache.Pool]v1alpha1.FirstRequestReach{}}
	change := func(want bool) {
		t.Helper()
		f.poolChanged("default", "first", true)
		if table.routes["one"] != want || !table.routes["two"] {
			t.Errorf("in the table: %v, want %v of the first", table.routes, want)
		}
		cache.Get("one")
	}
	change(false) // the first word about the pool
	change(true)
	reach["first"] = v1alpha1.ReachKey
	change(false)
	change(true)
	if !f.open(routeOf("two", "second", nil)) || f.open(routeOf("one", "first", nil)) || !f.open(routeOf("i0123456789abcdefghij", "first", nil)) {
		t.Error("open is not: a public pool's, or an ID of our own making")
	}
}

// logLines is what was logged; it is safe for concurrent use.
type logLines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A gateway that waits for a stuck worker says so, and not all the time.
func TestWaitingForAWorkerIsLogged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		lines := &logLines{}
		f := &fastPath{folder: "/dev/shm/x", log: slog.New(slog.NewTextHandler(lines, nil))}
		said := func() int {
			synctest.Wait()
			return strings.Count(lines.String(), "no worker of Envoy")
		}
		stop := f.tellWaiting(t.Context())
		for _, step := range []struct {
			wait        time.Duration
			least, most int
		}{{settleQuiet - 1, 0, 0}, {1, 1, 1}, {time.Hour, 8, 15}, {24 * time.Hour, 144, 160}} {
			time.Sleep(step.wait)
			if n := said(); n < step.least || n > step.most {
				t.Errorf("%v later it was said %d times", step.wait, n)
			}
		}
		stop()
		before := said()
		time.Sleep(time.Hour)
		if said() != before || !strings.Contains(lines.String(), "waited=5s") || !strings.Contains(lines.String(), "folder=/dev/shm/x") {
			t.Errorf("after the end, or without what is waited for:\n%s", lines.String())
		}
	})
}
