package gateway

import (
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

// Prepare holds all, asks Envoy once, and says what is in use: what Envoy has
// open, what is parked, and what was stamped within its own timeout.
func TestPrepare(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	status, polls := http.StatusOK, 0
	usage := inuse.NewRegistry(nil)
	envoy := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		polls++
		for _, id := range []string{"open", "parked", "stamped", "unused"} {
			if _, held := usage.HeldNow(id, "c"); !held {
				t.Errorf("%s is not held when Envoy is asked", id)
			}
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte("sandbox::198.18.0.5:8000::rq_active::1\n"))
	})}
	go func() { _ = envoy.Serve(l) }()
	defer envoy.Close()
	r := releaser{usage, inuse.NewEnvoyPoller(inuse.PollerOptions{
		Registry: usage, Claims: oneClaim{}, AdminSocket: socket, Tick: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
	}), routecache.New(0)}
	defer usage.Park("parked")()
	usage.Stamp("stamped", "c").Touch(usage.Now() - int64(time.Minute))
	usage.Stamp("unused", "c").Touch(usage.Now() - int64(time.Minute))
	batch := []controlplane.Release{
		{SandboxID: "open", ClaimID: "c", Token: "1", Idle: time.Second},
		{SandboxID: "parked", ClaimID: "c", Token: "2", Idle: time.Second},
		{SandboxID: "stamped", ClaimID: "c", Token: "3", Idle: time.Hour},
		{SandboxID: "unused", ClaimID: "c", Token: "4", Idle: time.Second},
		{SandboxID: "unheard", ClaimID: "c", Token: "5", Idle: time.Second},
	}
	inUse, known := r.Prepare(t.Context(), batch)
	if got := strings.Join(inUse, " "); got != "open parked stamped" || !known || polls != 1 {
		t.Errorf("in use %q, known %v, %d polls", got, known, polls)
	}
	for _, one := range batch {
		if !usage.Stamp(one.SandboxID, one.ClaimID).Holding() {
			t.Errorf("%s is not held", one.SandboxID)
		}
	}
	status = http.StatusInternalServerError
	if inUse, known := r.Prepare(t.Context(), batch); known || len(inUse) != 0 {
		t.Errorf("in use %v, known %v without an Envoy that answers", inUse, known)
	}
}
