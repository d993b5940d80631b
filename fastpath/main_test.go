package fastpath

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/test/cmodule"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		cmodule.Remove()
		os.Exit(code)
	}))
}

const generatedID = "iaaaaaaaaaaaaaaaaaaaa"

// world is a cache with its table, without an Envoy.
type world struct {
	cache   *routecache.Cache
	table   *Table
	folder  string
	lease   atomic.Int64
	version string
	open    func(*routecache.Route) bool
}

func newWorld(t *testing.T, size int) *world {
	t.Helper()
	w := &world{folder: cmodule.Folder(t), version: "1.40.0"}
	w.lease.Store(int64(time.Hour))
	w.begin(t, size)
	return w
}

// begin does what a gateway process does at its start.
func (w *world) begin(t *testing.T, size int) {
	t.Helper()
	w.cache = routecache.New(size)
	table, err := Open(Options{
		Folder: w.folder, Size: size,
		Lease: func() time.Duration { return time.Duration(w.lease.Load()) },
		Open:  func(r *routecache.Route) bool { return w.open == nil || w.open(r) },
		EnvoyVersion: func(context.Context) (string, error) {
			if w.version == "" {
				return "", errors.New("no Envoy")
			}
			return w.version, nil
		},
		Tested: []string{"1.40.0"},
		Now:    func() int64 { return time.Now().UnixNano() },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	if err := table.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.table = table
	w.cache.SetMirror(table)
}

func route(id, addr string) *routecache.Route {
	return &routecache.Route{
		SandboxID: id, Pool: routecache.PoolOf("default", "echo"), ClaimID: "claim-of-" + id, PodUID: "uid-of-" + id,
		Addr: netip.MustParseAddr(addr), PodRV: 1, Use: new(routecache.ClaimUse),
	}
}

func (w *world) put(t *testing.T, r *routecache.Route) *routecache.Route {
	t.Helper()
	if !w.cache.Put(w.cache.Begin(r.SandboxID), r) {
		t.Fatal("the cache refused a route")
	}
	return r
}

// envoy starts a process with the module, which has taken the table over and is trusted.
func (w *world) envoy(t *testing.T, how string, flags ...string) *cmodule.Process {
	t.Helper()
	p := cmodule.Start(t, cmodule.Build(t, flags...), how, w.folder)
	if got := p.Ask(t, request("nobody", "80")...); got != nil {
		t.Fatalf("an answer for an ID without a route: %v", got)
	}
	w.table.beat(t.Context())
	return p
}

func request(id, port string) []string {
	return []string{":path", "/", ":authority", "localhost:8080", "x-sandbox-id", id, "x-sandbox-port", port}
}
