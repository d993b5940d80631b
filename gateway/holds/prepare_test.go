package holds

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/controlplane"
	"github.com/sandlane/sandlane/gateway/inuse"
	"github.com/sandlane/sandlane/routecache"
)

type oneClaim struct{}

func (oneClaim) RangeClaims(f func(netip.Addr, string, string, string) bool) {
	f(netip.MustParseAddr("198.18.0.5"), "default", "open", "c")
}

// table stands in for the fast path's table: it notes what it is told.
type table struct {
	steps []string
	wait  error
}

func (s *table) Publish(r *routecache.Route) { r.SetSlot(1) }
func (s *table) Retract(r *routecache.Route) {
	r.SetSlot(0)
	s.steps = append(s.steps, "removed")
}
func (s *table) Used(*routecache.Route) bool    { return false }
func (s *table) Wait(ctx context.Context) error { s.steps = append(s.steps, "waited"); return s.wait }

// serveClusters is an Envoy that answers so when it is asked what is open.
func serveClusters(t *testing.T, answer func(http.ResponseWriter)) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "admin.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	envoy := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) })}
	done := make(chan struct{})
	go func() { defer close(done); _ = envoy.Serve(l) }()
	t.Cleanup(func() { _ = envoy.Close(); <-done })
	return socket
}

// Prepare holds all, asks Envoy once, and says what is in use: what Envoy has
// open, what is parked, and what was noted within its own timeout.
func TestPrepare(t *testing.T) {
	status, polls := http.StatusOK, 0
	usage := inuse.NewRegistry(nil)
	socket := serveClusters(t, func(w http.ResponseWriter) {
		polls++
		for _, id := range []string{"open", "parked", "noted", "unused"} {
			if _, held := usage.HeldNow(id, "c"); !held {
				t.Errorf("%s is not held when Envoy is asked", id)
			}
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte("sandbox::198.18.0.5:8000::rq_active::1\n"))
	})
	r := New(usage, inuse.NewEnvoyPoller(inuse.PollerOptions{
		Registry: usage, Claims: []inuse.Claims{oneClaim{}}, AdminSocket: socket, Tick: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
	}), routecache.New(0), nil)
	defer usage.Park("parked")()
	usage.ClaimUse("noted", "c").Touch(usage.Now() - int64(time.Minute))
	usage.ClaimUse("unused", "c").Touch(usage.Now() - int64(time.Minute))
	batch := []controlplane.Release{
		{SandboxID: "open", ClaimID: "c", Token: "1", Idle: time.Second},
		{SandboxID: "parked", ClaimID: "c", Token: "2", Idle: time.Second},
		{SandboxID: "noted", ClaimID: "c", Token: "3", Idle: time.Hour},
		{SandboxID: "unused", ClaimID: "c", Token: "4", Idle: time.Second},
		{SandboxID: "unheard", ClaimID: "c", Token: "5", Idle: time.Second},
	}
	inUse, known := r.Prepare(t.Context(), batch)
	if got := strings.Join(inUse, " "); got != "open parked noted" || !known || polls != 1 {
		t.Errorf("in use %q, known %v, %d polls", got, known, polls)
	}
	for _, one := range batch {
		if !usage.ClaimUse(one.SandboxID, one.ClaimID).Holding() {
			t.Errorf("%s is not held", one.SandboxID)
		}
	}
	status = http.StatusInternalServerError
	if inUse, known := r.Prepare(t.Context(), batch); known || len(inUse) != 0 {
		t.Errorf("in use %v, known %v without an Envoy that answers", inUse, known)
	}
}

// A release is prepared in this order: hold, out of the table, wait for Envoy's
// workers, and only then ask what is open. What cannot be waited for is not known.
func TestPrepareTakesRoutesOutOfTheTable(t *testing.T) {
	usage := inuse.NewRegistry(nil)
	use := usage.ClaimUse("unused", "c")
	cache, table := routecache.New(0), &table{}
	cache.SetMirror(table)
	route := &routecache.Route{SandboxID: "unused", ClaimID: "c", PodUID: "u", Pool: routecache.PoolOf("default", "p"),
		Addr: netip.MustParseAddr("198.18.0.5"), PodRV: 1, Use: use}
	if !cache.Put(cache.Begin("unused"), route) {
		t.Fatal("refused")
	}
	socket := serveClusters(t, func(w http.ResponseWriter) {
		table.steps = append(table.steps, "asked")
		_, _ = w.Write([]byte("sandbox::198.18.0.5:8000::rq_active::1\n"))
	})
	r := New(usage, inuse.NewEnvoyPoller(inuse.PollerOptions{
		Registry: usage, Claims: []inuse.Claims{oneClaim{}}, AdminSocket: socket, Tick: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
	}), cache, nil)
	batch := []controlplane.Release{{SandboxID: "unused", ClaimID: "c", Token: "1", Idle: time.Second}}
	if _, known := r.Prepare(t.Context(), batch); !known {
		t.Error("not known")
	}
	if got := strings.Join(table.steps, " "); got != "removed waited asked" || !use.Holding() || cache.Get("unused") == nil {
		t.Errorf("steps %q, held %v", got, use.Holding())
	}
	table.wait = errors.New("a worker is stuck")
	if inUse, known := r.Prepare(t.Context(), batch); known || len(inUse) > 0 {
		t.Error("known although a worker is stuck")
	}
}
