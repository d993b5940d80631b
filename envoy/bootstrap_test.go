package envoy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

func TestBootstrapRefusesBadOptions(t *testing.T) {
	t.Parallel()
	if _, err := Bootstrap(Options{RunDir: "/r", Port: -1}); err == nil || !strings.Contains(err.Error(), "envoy options: port -1") {
		t.Errorf("Bootstrap: %v", err)
	}
}

func TestRenderedFormsAreTheSameConfiguration(t *testing.T) {
	t.Parallel()
	want := mustBootstrap(t, Options{RunDir: "/run/x", CertFile: "/c", KeyFile: "/k"})
	js, err := JSON(want)
	if err != nil {
		t.Fatal(err)
	}
	ys, err := YAML(want)
	if err != nil {
		t.Fatal(err)
	}
	back, err := yaml.YAMLToJSON(ys)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"json": js, "yaml": back} {
		got := new(bootstrapv3.Bootstrap)
		if err := protojson.Unmarshal(data, got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !proto.Equal(got, want) {
			t.Errorf("%s is not the configuration it was made from", name)
		}
	}
}

// What makes a request safe must not be lost by an edit elsewhere.
func TestSafeguards(t *testing.T) {
	t.Parallel()
	js, err := JSON(mustBootstrap(t, Options{RunDir: "/run/x"}))
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, js); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"type":"ORIGINAL_DST"`,
		`"original_dst_lb_config":{"metadata_key":{"key":"sandlane","path":[{"key":"destination"}]}}`,
		`"mutation_rules":{"disallow_all":true,`,
		`"retry_on":"reset-before-request"`,
		`"cleanup_interval":"60s"`, // the bench case "sparse" shows what 5s cost
		`"use_remote_address":true`,
		`"tcp_keepalive":{"keepalive_probes":3,"keepalive_time":15,"keepalive_interval":5}`,
		`"disallow_all":true`,
	} {
		if !strings.Contains(compact.String(), want) {
			t.Errorf("the configuration lacks %s", want)
		}
	}
	for _, never := range []string{`"use_http_header":true`, `"http_header_name"`, `"failure_mode_allow":true`, `"allow_mode_override":true`} {
		if strings.Contains(compact.String(), never) {
			t.Errorf("the configuration has %s", never)
		}
	}
}

// A busy Envoy notices late that a socket of its own machine is connected: no request
// may fail for that before it would for want of an answer.
func TestOwnSocketsConnectAsLongAsRequestsWait(t *testing.T) {
	t.Parallel()
	const wait = 7 * time.Second
	sockets := 0
	for _, c := range mustBootstrap(t, Options{RunDir: "/run/x", MessageTimeout: wait}).GetStaticResources().GetClusters() {
		if c.GetLoadAssignment().GetEndpoints() == nil {
			continue // of pods
		}
		if sockets++; c.GetConnectTimeout().AsDuration() != wait {
			t.Errorf("a connection of cluster %s may take %v, and a request %v", c.GetName(), c.GetConnectTimeout().AsDuration(), wait)
		}
	}
	if sockets != 2 {
		t.Errorf("%d clusters with a socket, want those of ExtProc and the REST API", sockets)
	}
}

// The real binary accepts every shape of the configuration.
func TestEnvoyValidates(t *testing.T) {
	t.Parallel()
	bin := envoyBin(t)
	cert, key := selfSigned(t)
	for name, o := range map[string]Options{
		"defaults": {},
		"health":   {HealthAddress: "127.0.0.1:8081"},
		"TLS":      {CertFile: cert, KeyFile: key},
		"rate":     {ClientRate: 100},
		"pauses":   {RetransmitMax: DefaultRetransmitMax},
		"small":    {MaxStreams: 1, MaxHeapBytes: 1 << 20, ListenAddress: "::"},
	} {
		o.RunDir = t.TempDir()
		file := filepath.Join(o.RunDir, "envoy.json")
		writeConfig(t, file, o)
		out, err := exec.Command(bin, "--mode", "validate", "--config-path", file).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		for _, line := range strings.Split(string(out), "\n") {
			if strings.Contains(line, "[warning]") && !unfinished.MatchString(line) {
				t.Errorf("%s: Envoy warns: %s", name, line)
			}
		}
	}
}

// unfinished matches the warnings of what Envoy calls work in progress and is used all the
// same (docs/design/decisions/envoy-settings.md).
var unfinished = regexp.MustCompile(`'envoy\.(config\.core\.v3\.Http1ProtocolOptions\.allow_custom_methods|extensions\.(filters\.http|http)\.custom_response\.[a-zA-Z0-9_.]+)'.* work-in-progress`)

func mustBootstrap(t testing.TB, o Options) *bootstrapv3.Bootstrap {
	t.Helper()
	b, err := Bootstrap(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeConfig(t testing.TB, file string, o Options) {
	t.Helper()
	js, err := JSON(mustBootstrap(t, o))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, js, 0o600); err != nil {
		t.Fatal(err)
	}
	secret, content, err := Certificate(o)
	if err == nil && secret != "" {
		err = os.WriteFile(secret, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// envoyBin is the Envoy the caller names. Without one the test is skipped, not
// passed; `make test` always names one.
func envoyBin(t testing.TB) string {
	t.Helper()
	bin := os.Getenv("ENVOY_BIN")
	if bin == "" {
		t.Skip("set ENVOY_BIN to an Envoy binary to run this test")
	}
	if err := Check(t.Context(), bin); err != nil {
		t.Fatal(fmt.Errorf("ENVOY_BIN: %w", err))
	}
	return bin
}
