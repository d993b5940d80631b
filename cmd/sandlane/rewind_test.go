package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sandlane/sandlane/test/kubetest"
)

// A controller, leading or not, whose API server has gone back to an older state ends
// with a line that says so: its caches would never be told of it.
func TestControllerEndsWhenTheAPIServerGoesBack(t *testing.T) {
	var back atomic.Bool
	var looks atomic.Int32
	server := rewindable(t, &back, &looks)
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],
"clusters":[{"name":"c","cluster":{"server":"` + server + `"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ns := kubetest.Namespace(t)
	children := map[string]*child{}
	for _, name := range []string{"first", "second"} {
		address := freeAddress(t)
		children[name] = startChild(t, "controller", "--kubeconfig", kubeconfig, "--system-namespace", ns, "--metrics-address", address)
		c := candidate{metrics: "http://" + address + "/metrics", child: children[name]}
		kubetest.Eventually(t, "a candidate", func() error { _, _, err := c.state(); return err })
	}
	// A controller looks only when its caches are filled.
	kubetest.Eventually(t, "two looks for each", func() error {
		if n := looks.Load(); n < 4 {
			return fmt.Errorf("%d looks", n)
		}
		return nil
	})
	for name, c := range children {
		if err := c.running(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	back.Store(true)
	for name, c := range children {
		select {
		case <-c.done:
		case <-time.After(time.Minute):
			t.Fatalf("%s goes on", name)
		}
		if said := c.output.String(); c.err == nil || !strings.Contains(said, "the API server has gone back to an older state") {
			t.Errorf("%s ended with %v and said %s", name, c.err, said)
		}
	}
}

// rewindable is the API server, whose single looks at sandboxes show its first version
// once it has gone back.
func rewindable(t *testing.T, back *atomic.Bool, looks *atomic.Int32) (address string) {
	t.Helper()
	cfg := kubetest.Config(t)
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, proxy.FlushInterval = transport, -1
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		look := strings.HasSuffix(r.URL.Path, "/sandboxes") && r.URL.Query().Get("limit") == "1"
		if look {
			looks.Add(1)
		}
		if look && back.Load() {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"SandboxList","apiVersion":"sandlane.dev/v1alpha1","metadata":{"resourceVersion":"1"},"items":[]}`)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}
