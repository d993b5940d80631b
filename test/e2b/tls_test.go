package e2b

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

// tlsDomain is what `up --tls` takes when it is told no other.
const tlsDomain = "sandlane.localhost"

var tlsFeatures = []feature{
	{"tls_commands", "commands and files by the sandbox's own host name"},
	{"tls_parallel", "commands: 40 at once"},
	{"tls_life", "`create`, `connect`, `list`, `isRunning`, `kill` by `api.<domain>`"},
	{"tls_killed", "a sandbox that ends while commands run; others go on"},
	{"tls_host_http", "`getHost`: a web server in the sandbox"},
	{"tls_host_websocket", "`getHost`: a WebSocket server in the sandbox"},
	{"tls_signed_urls", "`uploadUrl`, `downloadUrl`; wrong and late signatures are refused"},
}

// TestTLS runs `sandlane up --tls` with two gateways, on which the tests take turns.
func TestTLS(t *testing.T) {
	t.Parallel() // it has a cluster of its own
	s := startTLS(t)
	for _, g := range s.Up.Gateways {
		t.Run(g.Name, func(t *testing.T) { testTLSGateway(t, s, g) })
	}
	worked := map[string]map[string]bool{}
	for i, use := range sdks {
		worked[use.name] = map[string]bool{}
		t.Run(use.name, func(t *testing.T) { testTLSSDK(t, s, s.Up.Gateways[i%2], use, worked[use.name]) })
	}
	testNoNameServer(t, s)
	checkTable(t, "table with TLS", tlsFeatures, worked)
}

func startTLS(t *testing.T) *stack.Stack {
	t.Helper()
	state, err := os.MkdirTemp("", "sandlane-e2b-tls-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s, err := stack.Start(ctx, state, "--tls", "--gateways", "2", "--isolation", "full", "--pool-size", "2", "--base-pool-size", "6")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Logs(40))
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if !t.Failed() {
			_ = os.RemoveAll(state)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// testTLSSDK runs an SDK whose names a name server of ours resolves. It finds the
// gateway by the domain alone, and speaks HTTP/2 to it.
func testTLSSDK(t *testing.T, s *stack.Stack, g stack.Gateway, use sdkUse, worked map[string]bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	names := startNameServer(t, tlsDomain, false)
	cmd := resolvedBy(ctx, t, names, use.args(ctx, t, "tls_cases")...)
	cmd.Env = append(withoutE2B(cmd.Env), tlsEnv(s, g)...)
	before := http2Requests(t, s, g)
	judge(t, cmd, tlsFeatures, worked)
	if names.asked.Load() == 0 {
		t.Error("nothing asked the name server: the names were found in another way than this test means")
	}
	if n := http2Requests(t, s, g) - before; n == 0 {
		t.Error("no request came by HTTP/2")
	} else {
		t.Logf("%d requests by HTTP/2, %d questions to the name server", n, names.asked.Load())
	}
}

// On most machines no name server knows names below .localhost. There what `up`
// prints is enough for Node, and Python's SDK finds them by itself; a program of a
// user that is written in Python does not.
func testNoNameServer(t *testing.T, s *stack.Stack) {
	everything := []string{"tls_commands", "tls_life", "tls_host_http", "tls_host_websocket", "tls_signed_urls"}
	for _, tc := range []struct {
		name  string
		use   sdkUse
		cases []string
	}{
		{"Node", sdks[4], everything},
		{"Python", sdks[0], everything[:2]},
		{"older Python", sdks[3], everything[:2]},
	} {
		t.Run(tc.name+" without a name server", func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := resolvedBy(ctx, t, startNameServer(t, "nothing.invalid", false), append(tc.use.args(ctx, t, "tls_cases"), tc.cases...)...)
			cmd.Env = append(withoutE2B(cmd.Env), append(tlsEnv(s, s.Up.Gateways[0]), "NODE_OPTIONS=--require="+s.Up.NodeResolve)...)
			var features []feature
			for _, c := range tc.cases {
				features = append(features, feature{name: c})
			}
			judge(t, cmd, features, map[string]bool{})
		})
	}
}

// tlsEnv is what `up --tls` prints, for one of the gateways.
func tlsEnv(s *stack.Stack, g stack.Gateway) []string {
	return []string{
		"E2B_API_KEY=" + s.Up.APIKey, "E2B_DOMAIN=" + g.Domain,
		"SSL_CERT_FILE=" + s.Up.CAFile, "NODE_EXTRA_CA_CERTS=" + s.Up.CAFile,
	}
}

// withoutE2B drops what would point an SDK elsewhere.
func withoutE2B(env []string) []string {
	var kept []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if name == filesEnv || !strings.HasPrefix(name, "E2B_") && name != "NODE_OPTIONS" {
			kept = append(kept, e)
		}
	}
	return kept
}

// http2Requests is how many requests a gateway's Envoy has had by HTTP/2.
func http2Requests(t *testing.T, s *stack.Stack, g stack.Gateway) int {
	t.Helper()
	socket := filepath.Join(s.State, "run", g.Name, "envoy-admin.sock")
	c := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://envoy/stats?filter=http.main.downstream_rq_http2_total", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`downstream_rq_http2_total: ([0-9]+)`).FindSubmatch(body)
	if m == nil {
		t.Fatalf("Envoy has no such statistic: %s", body)
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

// trusted has the stack's certificate authority and no other.
func trusted(t *testing.T, s *stack.Stack) *x509.CertPool {
	t.Helper()
	ca, err := os.ReadFile(s.Up.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatalf("%s holds no certificate", s.Up.CAFile)
	}
	return pool
}
