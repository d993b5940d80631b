package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/test/cmodule"
	"github.com/sandlane/sandlane/test/kubetest"
	"github.com/sandlane/sandlane/test/ports"
)

// crowd is a gateway with a real Envoy, and one server that stands for every pod. Its world is
// that of the flood, neighbour that of another tenant.
type crowd struct {
	*world
	neighbour *world
	g         *gateway
	url       string
	port      string       // of the pods
	open      atomic.Int32 // requests that the pods have
}

func newCrowd(t *testing.T, streams int, fast bool) *crowd {
	t.Helper()
	bin := os.Getenv("ENVOY_BIN")
	if bin == "" {
		t.Skip("set ENVOY_BIN to an Envoy binary to run this test")
	}
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	w := &crowd{world: newWorld(t), url: fmt.Sprintf("http://127.0.0.1:%d", port)}
	// The flood's clients, the pods and ExtProc share one process, so an answer may take long.
	o := envoy.Options{Port: port, MaxStreams: streams, MessageTimeout: time.Minute}
	w.g = w.gatewayWith(kubetest.Config(t), func(own *Options) {
		own.MaxStreams, own.FirstRequestPool = streams, types.NamespacedName{Namespace: w.ns, Name: "base"}
		if fast {
			o.FastPath = envoy.FastPath{Module: cmodule.Module(t), Folder: cmodule.Folder(t)}
			t.Cleanup(cmodule.Remove)
			own.FastPath, own.FastPathFolder = true, o.FastPath.Folder
		}
	})
	o.RunDir = w.g.o.RunDir
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	_, w.port, _ = net.SplitHostPort(l.Addr().String())
	pods := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			w.open.Add(1)
			defer w.open.Add(-1)
			rw.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})}
	go func() { _ = pods.Serve(l) }()
	t.Cleanup(func() { _ = pods.Close() })
	w.startEnvoy(bin, o)
	neighbour := *w.world
	neighbour.ns = kubetest.Namespace(t)
	w.neighbour = &neighbour
	w.neighbour.pool("spare", v1alpha1.SandboxdPort, nil)
	return w
}

// neighbourIsServed sends a hit, a first request and a create of another tenant.
func (w *crowd) neighbourIsServed(t *testing.T, hit string) {
	t.Helper()
	for range 20 {
		if status, body := w.get(t.Context(), http.DefaultClient, hit, "/"); status != http.StatusOK {
			t.Errorf("another tenant's hit: %d %s", status, body)
		}
	}
	d := w.neighbour.sandboxd()
	w.neighbour.pod("spare", d.addr, nil)
	if status, body := w.get(t.Context(), http.DefaultClient, kubetest.Name("first"), "/", "X-Sandbox-Pool", w.neighbour.ns+"/spare"); status != http.StatusOK {
		t.Errorf("another tenant's first request: %d %s", status, body)
	}
	d = w.neighbour.sandboxd()
	w.neighbour.pod("spare", d.addr, nil)
	n := w.neighbour.new(newID())
	n.Pool = "spare"
	if _, err := w.g.create(t, n); err != nil {
		t.Errorf("another tenant's create: %v", err)
	}
}

func (w *crowd) startEnvoy(bin string, o envoy.Options) {
	t := w.t
	t.Helper()
	bootstrap, err := envoy.Bootstrap(o)
	if err != nil {
		t.Fatal(err)
	}
	config, err := envoy.JSON(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "envoy.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, envoy.Args(file, 1)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	admin := envoy.Admin{Socket: w.g.o.path(EnvoyAdminSocket)}
	kubetest.Eventually(t, "Envoy", func() error { return admin.Ready(t.Context()) })
}

// route gives a sandbox of a namespace a route to the pods' server, by an address of its own.
func (w *crowd) route(namespace string, last byte) (id string) {
	w.t.Helper()
	id = newID()
	r := &routecache.Route{
		SandboxID: id, Pool: routecache.PoolOf(namespace, "pool"), ClaimID: "claim", PodUID: "uid",
		Addr: netip.AddrFrom4([4]byte{127, 0, 1, last}), PodRV: 1, Use: w.g.usage.ClaimUse(id, "claim"),
	}
	if !w.g.cache.Put(w.g.cache.Begin(id), r) {
		w.t.Fatal("refused")
	}
	return id
}

// get asks for a path of a sandbox, and returns the status, and Retry-After with the body. It
// returns from a slow path when ctx ends.
func (w *crowd) get(ctx context.Context, client *http.Client, id, path string, header ...string) (status int, body string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("X-Sandbox-Id", id)
	req.Header.Set("X-Sandbox-Port", w.port)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK && path == "/slow" {
		<-ctx.Done()
		return resp.StatusCode, ""
	}
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header.Get("Retry-After") + string(b)
}

// client returns one with a connection of its own to Envoy. Without a connection that is there,
// each request would open another, which are more than Envoy takes.
func (w *crowd) client(ctx context.Context) *http.Client {
	w.t.Helper()
	h2 := new(http.Protocols)
	h2.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: h2}
	w.t.Cleanup(tr.CloseIdleConnections)
	client := &http.Client{Transport: tr}
	if status, body := w.get(ctx, client, "", "/"); status == 0 {
		w.t.Fatalf("a client's first request: %s", body)
	}
	return client
}

// flood sends n requests at once on connections with 100 streams each, to ids in turn. It
// counts answers by status until stop is called, which waits for the end of all.
func (w *crowd) flood(n int, path string, ids ...string) (answers func(status int) int, stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var mu sync.Mutex
	seen := map[int]int{}
	var all sync.WaitGroup
	var client *http.Client
	for i := range n {
		if i%100 == 0 {
			client = w.client(ctx)
		}
		to := client
		all.Go(func() {
			status, body := w.get(ctx, to, ids[i%len(ids)], path)
			mu.Lock()
			defer mu.Unlock()
			if status == http.StatusTooManyRequests && (!strings.HasPrefix(body, "1{") || !strings.Contains(body, `"code":429`)) {
				w.t.Errorf("an answer with 429: %s", body)
			}
			seen[status]++
		})
	}
	return func(status int) int { mu.Lock(); defer mu.Unlock(); return seen[status] }, func() { cancel(); all.Wait() }
}

// One namespace with four sandboxes opens more streams than Envoy takes. While it is alone it
// gets all that Envoy is said to take; the hits of another tenant go on.
func TestOneNamespaceTakesNoOthersStreams(t *testing.T) {
	for name, tc := range map[string]struct {
		streams, flood int
		fast           bool
	}{
		"many more than Envoy takes":  {1000, 2000, false},
		"the chart's size":            {2500, 2600, false},
		"the chart's size, fast path": {2500, 2600, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCrowd(t, tc.streams, tc.fast)
			other := w.route("other", 9)
			hit := func() error {
				if status, body := w.get(t.Context(), http.DefaultClient, other, "/"); status != http.StatusOK {
					return fmt.Errorf("%d %s", status, body)
				}
				return nil
			}
			kubetest.Eventually(t, "a hit", hit)
			if tc.fast {
				kubetest.Eventually(t, "Envoy to answer by itself", func() error {
					if err := hit(); err != nil || w.g.fast.Answered() > 0 {
						return err
					}
					return errors.New("none yet")
				})
			}
			var ids []string
			for i := range 4 {
				ids = append(ids, w.route("greedy", byte(1+i)))
			}
			answers, stop := w.flood(tc.flood, "/slow", ids...)
			defer stop()
			kubetest.Eventually(t, "the flood", func() error {
				if err := hit(); err != nil {
					t.Errorf("another tenant's hit, with %d open: %v", w.open.Load(), err)
				}
				if n := int(w.open.Load()) + answers(429) + answers(503) + answers(0); n < tc.flood {
					return fmt.Errorf("%d of %d are open or answered", n, tc.flood)
				}
				return nil
			})
			open := int(w.open.Load())
			t.Logf("%d open, %d refused", open, answers(429))
			if most := envoy.SandboxRequests(tc.streams); open >= most || !tc.fast && open < tc.streams*98/100 {
				t.Errorf("alone it has %d open of %d", open, tc.streams)
			}
			// With the fast path, Envoy itself refuses what was on its way when the routes left
			// its table.
			if n := answers(503); n > 0 && !tc.fast {
				t.Errorf("%d are no 429", n)
			}
			w.neighbourIsServed(t, other)
		})
	}
}

// An anonymous client fills the places to wait of a Public pool without pods: hits, first
// requests and creates of another tenant go on.
func TestParkedRequestsTakeNothingFromOthers(t *testing.T) {
	for name, tc := range map[string]struct{ streams, flood, names int }{
		"20 names":  {250, 1500, 20},
		"one name":  {250, 1500, 1},
		"up's size": {envoy.DefaultMaxStreams, 6000, 20},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCrowd(t, tc.streams, false)
			other := w.route("other", 9)
			var ids []string
			for i := range tc.names {
				ids = append(ids, kubetest.Name("flood"+strconv.Itoa(i)))
			}
			answers, stop := w.flood(tc.flood, "/", ids...)
			defer stop()
			kubetest.Eventually(t, "the flood", func() error {
				if n := answers(429) + answers(503) + answers(0) + w.g.room.Taken(); n < tc.flood {
					return fmt.Errorf("%d are answered or wait", n)
				}
				return nil
			})
			t.Logf("%d wait, 429 %d, 503 %d", w.g.room.Taken(), answers(429), answers(503))
			if n := w.g.room.Taken(); n == 0 || n > tc.streams/4+1 {
				t.Errorf("%d wait", n)
			}
			w.neighbourIsServed(t, other)
		})
	}
}
