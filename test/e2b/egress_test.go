package e2b

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/certs"
	"github.com/sandlane/sandlane/test/stack"
)

var egressFeatures = []feature{
	{"allowed", "a host that is allowed by name, with a credential that the sandbox never had"},
	{"trusted", "programs trust egress's certificates"},
	{"replaced", "a header of the sandbox's own does not stand beside the credential"},
	{"passed_on", "a host without a rule is reached as it is"},
	{"plain_http", "port 80 carries no credential"},
	{"other_names", "other names are refused: by the name server, by SNI, by Host"},
	{"forged", "a Host that is not the SNI is refused"},
	{"addresses", "addresses are refused, and TLS without a name"},
	{"closed", "a name that leads to a closed address is refused"},
	{"other_ways", "QUIC, other ports; names by TCP are those by UDP"},
	{"text_records", "the name server answers addresses alone"},
	{"neighbour", "another sandbox's names and rules"},
	{"shown", "the API shows rules without their values"},
	{"never_inside", "the credential is in no file and no environment of the sandbox"},
	{"updated", "rules that are replaced hold"},
	{"secrets", "secrets are made, listed page by page, given new values and destroyed, as the SDK's Secret does"},
	{"placeholder", "a rule names a secret, whose value of the time each request gets; an unknown one fails at use"},
	{"late_rules", "a sandbox without rules trusts egress once an update gives it some"},
	{"paused_rules", "so does one that gets them while it is paused, with its memory or without"},
	{"first_request", "a sandbox of a first request reaches its pool's names alone"},
}

// ofJavaScript are those that the program of the JavaScript SDK tries.
var ofJavaScript = []string{"allowed", "other_names", "forged", "addresses", "shown", "updated", "secrets", "placeholder", "late_rules"}

// internet is a name server, and HTTP and HTTPS for each name below example, at one address.
type internet struct {
	names *nameServer
	ca    []byte // PEM
}

func startInternet(t *testing.T) *internet {
	t.Helper()
	authority := certs.New(t)
	pair, err := tls.X509KeyPair(authority.Issue(t, certs.Leaf{Names: []string{"api.example", "plain.example", "other.example", "closed.example"}, Usage: x509.ExtKeyUsageServerAuth}))
	if err != nil {
		t.Fatal(err)
	}
	in := &internet{names: startNameServer(t, "example", true), ca: authority.PEM()}
	who := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, strings.Join(append([]string{r.Host}, r.Header.Values("Authorization")...), " "))
	})
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	for _, port := range []uint16{80, 443} {
		l, err := net.Listen("tcp4", netip.AddrPortFrom(in.names.addr, port).String())
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: who, TLSConfig: config, ReadHeaderTimeout: 10 * time.Second}
		go func() {
			if port == 443 {
				_ = server.ServeTLS(l, "", "")
				return
			}
			_ = server.Serve(l)
		}()
		t.Cleanup(func() { _ = server.Close() })
	}
	return in
}

// A program of an SDK reaches the hosts that its sandbox is allowed, one of them with a
// credential that is nowhere in the sandbox, and nothing else.
func TestEgressByName(t *testing.T) {
	t.Parallel() // it has a cluster of its own
	in := startInternet(t)
	trusted := filepath.Join(t.TempDir(), "internet.pem")
	if err := os.WriteFile(trusted, in.ca, 0o600); err != nil {
		t.Fatal(err)
	}
	s := startEgress(t, in, trusted)
	pool := &v1alpha1.SandboxPool{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "base"}, pool); err != nil {
		t.Fatal(err)
	}
	was := pool.DeepCopy()
	pool.Spec.FirstRequest.Egress = &v1alpha1.FirstRequestEgress{AllowNames: []string{"plain.example"}}
	if err := s.Client.Patch(t.Context(), pool, client.MergeFrom(was)); err != nil {
		t.Fatal(err)
	}
	keys := &corev1.ConfigMap{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: "sandlane-system", Name: "egress-keys"}, keys); err != nil {
		t.Fatal(err)
	}
	both := filepath.Join(t.TempDir(), "trusted.pem")
	if err := os.WriteFile(both, append([]byte(keys.Data["ca.crt"]), in.ca...), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sdk := range []struct {
		name     string
		args     func(context.Context, *testing.T) []string
		features []string // all if nil
		rotates  bool     // the keys, afterwards
	}{
		{"Python 2.63.0", func(ctx context.Context, t *testing.T) []string {
			return []string{python(ctx, t, "2.63.0"), filepath.Join("python", "egress.py")}
		}, nil, true},
		{"JavaScript 2.51.0", func(ctx context.Context, t *testing.T) []string {
			return []string{"node", filepath.Join("js", "egress.mjs"), js(ctx, t, "2.51.0")}
		}, ofJavaScript, false},
		// The oldest of the tested ones that have Secret.
		{"Python 2.45.1", func(ctx context.Context, t *testing.T) []string {
			return []string{python(ctx, t, "2.45.1"), filepath.Join("python", "egress.py")}
		}, nil, false},
		{"JavaScript 2.50.0", func(ctx context.Context, t *testing.T) []string {
			return []string{"node", filepath.Join("js", "egress.mjs"), js(ctx, t, "2.50.0")}
		}, ofJavaScript, false},
	} {
		t.Run(sdk.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			args := append(sdk.args(ctx, t), both, in.names.addr.String(), "192.0.2.1")
			cmd := exec.CommandContext(ctx, args[0], args[1:]...)
			cmd.Env = append(withoutE2B(os.Environ()), "E2B_API_KEY="+s.Up.APIKey, "E2B_API_URL="+s.Up.GatewayURL, "E2B_SANDBOX_URL="+s.Up.GatewayURL)
			judge(t, cmd, slices.DeleteFunc(slices.Clone(egressFeatures), func(f feature) bool {
				return sdk.features != nil && !slices.Contains(sdk.features, f.name)
			}), map[string]bool{})
		})
		if sdk.rotates {
			// The others use the new keys, of an egress process that has not started anew.
			if out, err := s.Run(t.Context(), "egress", "rotate"); err != nil {
				t.Errorf("rotate: %v: %s", err, out)
			}
		}
	}
	nothingShows(t, s)
	showsConnections(t, s)
}

// showsConnections asks for what a sandbox connected to, and was refused.
func showsConnections(t *testing.T, s *stack.Stack) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.State, "logs", "egress.log"))
	if err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`"sandbox":"([^"]+)".*"host":"api.example","rule":"api.example","verdict":"intercepted"`).FindSubmatch(text)
	if id == nil {
		t.Fatal("no record of a request with a credential")
	}
	out, err := s.Run(t.Context(), "egress", "log", string(id[1]))
	for _, want := range []string{`api\.example:443 +intercepted +api\.example`, `:443 +denied`, `:53 +denied`, `api\.example:80 +passed`} {
		if err != nil || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no line of %q, %v:\n%s", want, err, out)
		}
	}
}

// nothingShows looks for the credential in the logs of all processes and in all objects but
// where it is sealed.
func nothingShows(t *testing.T, s *stack.Stack) {
	t.Helper()
	const credential = "hunter2"
	logs, err := filepath.Glob(filepath.Join(s.State, "logs", "*"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("%d logs, %v", len(logs), err)
	}
	for _, file := range logs {
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(credential)) {
			t.Errorf("%s has the credential", file)
		}
	}
	for _, list := range []client.ObjectList{&v1alpha1.SandboxList{}, &v1alpha1.SandboxSecretList{}, &corev1.PodList{}, &corev1.EventList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}} {
		if err := s.Client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(fmt.Sprintf("%+v", list), credential) {
			t.Errorf("a %T has the credential", list)
		}
	}
}

func startEgress(t *testing.T, in *internet, roots string) *stack.Stack {
	t.Helper()
	state, err := os.MkdirTemp("", "sandlane-e2b-egress-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	block := netip.PrefixFrom(in.names.addr, 32).String()
	s, err := stack.Start(ctx, state, "--egress", "--egress-ca", roots, "--egress-resolver", netip.AddrPortFrom(in.names.addr, 53).String(),
		"--egress-open", "api.example="+block+",plain.example="+block, "--isolation", "full", "--pool-size", "1", "--base-pool-size", "2")
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
