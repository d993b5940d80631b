package envoy

import (
	"context"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/sandlane/sandlane/fastpath"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/test/cmodule"
)

// fastWorld is a real Envoy with the module and a table; ExtProc refuses every request,
// so what reaches the pod was answered inside Envoy.
type fastWorld struct {
	*world
	cache *routecache.Cache
	table *fastpath.Table
}

func startFastWorld(t *testing.T) *fastWorld {
	t.Helper()
	f := &fastWorld{cache: routecache.New(100)}
	folder := cmodule.Folder(t)
	f.world = startWorld(t, Options{FastPath: FastPath{Module: cmodule.Module(t), Folder: folder}}, true)
	f.gateway.answer = func(string) *extprocv3.ProcessingResponse { return nil }
	table, err := fastpath.Open(fastpath.Options{
		Folder: folder, Size: 100, Lease: func() time.Duration { return time.Hour }, Open: func(*routecache.Route) bool { return true },
		EnvoyVersion: f.admin.Version, Tested: FastPathVersions, Now: func() int64 { return time.Now().UnixNano() },
	})
	if err != nil {
		t.Fatal(err)
	}
	f.table = table
	f.cache.SetMirror(table)
	if err := table.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = table.Start(ctx) }()
	t.Cleanup(func() { cancel(); <-done; _ = table.Close() })
	return f
}

func (f *fastWorld) put(t *testing.T, id string) (*routecache.Route, string) {
	t.Helper()
	at := netip.MustParseAddrPort(f.pod.Listener.Addr().String())
	return f.putAt(t, id, at.Addr()), strconv.Itoa(int(at.Port()))
}

func (f *fastWorld) putAt(t *testing.T, id string, at netip.Addr) *routecache.Route {
	t.Helper()
	r := &routecache.Route{SandboxID: id, Pool: routecache.PoolOf("default", "echo"), ClaimID: "claim", PodUID: "uid",
		Addr: at, PodRV: 1, Use: new(routecache.ClaimUse)}
	if !f.cache.Put(f.cache.Begin(id), r) {
		t.Fatal("refused")
	}
	return r
}

// status asks for a path of a sandbox.
func (f *fastWorld) status(t *testing.T, id, port, path string, more ...string) int {
	t.Helper()
	resp, _ := f.get(t, path, append([]string{"X-Sandbox-Id", id, "X-Sandbox-Port", port}, more...)...)
	return resp.StatusCode
}

// answers waits until Envoy has claimed the table and is trusted.
func (f *fastWorld) answers(t *testing.T, id, port string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(20 * time.Second); f.status(t, id, port, "/") != http.StatusOK; {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("Envoy never answered from the table")
		}
	}
}

// A hit never reaches ExtProc; a miss, and what the module does not understand, does,
// and fails closed when it does not answer. The API's routes pass both by.
func TestFastPath(t *testing.T) {
	t.Parallel()
	f := startFastWorld(t)
	f.serveAPI(t, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusTeapot) })
	r, port := f.put(t, "known")
	f.answers(t, "known", port)
	f.gateway.mu.Lock()
	asked := len(f.gateway.seen)
	f.gateway.mu.Unlock()
	for range 20 {
		if got := f.status(t, "known", port, "/a/b?c"); got != http.StatusOK {
			t.Fatalf("a hit: %d", got)
		}
	}
	f.gateway.mu.Lock()
	if len(f.gateway.seen) != asked {
		t.Errorf("ExtProc was asked for %d of 20 hits", len(f.gateway.seen)-asked)
	}
	f.gateway.mu.Unlock()
	for name, refused := range map[string]func() int{
		"a miss":      func() int { return f.status(t, "unknown", port, "/") },
		"a key":       func() int { return f.status(t, "known", port, "/", "X-Sandbox-Api-Key", "k") },
		"a pool":      func() int { return f.status(t, "known", port, "/", "X-Sandbox-Pool", "p") },
		"a namespace": func() int { return f.status(t, "known", port, "/", "X-Sandbox-Namespace", "default") },
		"another pair": func() int {
			return f.status(t, "known", port, "/", "E2b-Sandbox-Id", "other", "E2b-Sandbox-Port", port)
		},
		"two IDs":        func() int { return f.status(t, "known", port, "/", "X-Sandbox-Id", "other") },
		"a control path": func() int { return f.status(t, "known", "49983", "/init") },
		"an internal header": func() int {
			return f.status(t, "unknown", port, "/", "X-Envoy-Original-Dst-Host", f.pod.Listener.Addr().String())
		},
	} {
		if got := refused(); got < 500 {
			t.Errorf("%s: %d, want an error", name, got)
		}
	}
	if resp, _ := f.get(t, "/sandboxes"); resp.StatusCode != http.StatusTeapot {
		t.Errorf("the REST API: %d", resp.StatusCode)
	}
	// What the module writes is its alone: no client can write it, and no pod sees it.
	hit := []string{hitHeader, "unknown uid claim " + f.pod.Listener.Addr().String()}
	if got := f.status(t, "unknown", port, "/", hit...); got < 500 {
		t.Errorf("a client that calls its request a hit: %d", got)
	}
	if resp, _ := f.get(t, "/sandboxes", hit...); resp.StatusCode != http.StatusTeapot {
		t.Errorf("the REST API, with the header of hits: %d", resp.StatusCode)
	}
	for len(f.podSaw) > 0 {
		for name := range (<-f.podSaw).Header {
			if strings.HasPrefix(strings.ToLower(name), "x-envoy") {
				t.Fatalf("the pod got %s", name)
			}
		}
	}
	f.cache.Drop(r)
	if got := f.status(t, "known", port, "/"); got < 500 {
		t.Errorf("a dropped route: %d", got)
	}
	f.put(t, "known")
	if got := f.status(t, "known", port, "/"); got != http.StatusOK {
		t.Errorf("the route again: %d", got)
	}
	f.table.Distrust(true)
	if got := f.status(t, "known", port, "/"); got < 500 {
		t.Errorf("without trust: %d", got)
	}
	f.table.Fold()
}

// What ExtProc sends to a sandbox still gets there beside the module.
func TestFastPathLeavesAnswersOfExtProcAlone(t *testing.T) {
	t.Parallel()
	f := startFastWorld(t)
	pod := f.pod.Listener.Addr().String()
	f.gateway.answer = func(string) *extprocv3.ProcessingResponse { return to(pod) }
	if got := f.status(t, "unknown", "80", "/"); got != http.StatusOK {
		t.Errorf("a miss that ExtProc answers: %d", got)
	}
}

// A module that Envoy cannot load is a configuration that it rejects: up finds out by
// validating it, which claims nothing.
func TestFastPathIsValidated(t *testing.T) {
	t.Parallel()
	bin := envoyBin(t)
	folder := cmodule.Folder(t)
	validate := func(module string) error {
		file := filepath.Join(t.TempDir(), "envoy.json")
		writeConfig(t, file, Options{RunDir: t.TempDir(), FastPath: FastPath{Module: module, Folder: folder}})
		return exec.Command(bin, append(Args(file, 1), "--mode", "validate")...).Run()
	}
	if err := validate(cmodule.Module(t)); err != nil {
		t.Errorf("the module: %v", err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("validating left %v, %v", left, err)
	}
	broken := filepath.Join(t.TempDir(), "broken.so")
	if err := os.WriteFile(broken, []byte("no module"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := validate(broken); err == nil {
		t.Error("a broken module passed")
	}
}

// Only where the order of memory accesses was checked is the fast path on.
func TestFastPathProven(t *testing.T) {
	t.Parallel()
	for arch, want := range map[string]bool{"amd64": true, "arm64": false, "riscv64": false, "": false} {
		if err := FastPathProven(arch); (err == nil) != want || err != nil && !strings.Contains(err.Error(), "not proven on "+arch) {
			t.Errorf("%q: %v", arch, err)
		}
	}
}
