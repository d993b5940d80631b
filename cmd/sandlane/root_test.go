package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sandlane/sandlane/envoy"
	"github.com/sandlane/sandlane/local"
)

// run runs a command line and returns its exit code and both outputs.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestMistakesAreOneLine(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	used := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	state := filepath.Join(t.TempDir(), "state")
	// Somebody keeps something where `up --tls` would keep its authority.
	if err := os.MkdirAll(filepath.Join(state, "tls", local.DefaultDomain, "mine"), 0o700); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"strat":        "unknown command \"strat\" for \"sandlane\"; see `sandlane --help`",
		"end":          "it is called as `sandlane end ID [flags]`",
		"apikey creat": "see `sandlane apikey --help`",
		"open a 8000 --kubeconfig /x --domain a..b":   `--domain "a..b": give a host name`,
		"console --kubeconfig /x --domain a/b":        `--domain "a/b": give a host name`,
		"up --nonsense":                               "unknown flag: --nonsense; see `sandlane up --help`",
		"up extra":                                    "extra",
		"up --port 70000":                             "--port 70000",
		"up --port x":                                 `"x"`,
		"up --pool-size -1":                           "--pool-size -1",
		"up --base-pool-size 101":                     "--base-pool-size 101",
		"up --gateways 9":                             "--gateways 9",
		"up --gateways 0":                             "--gateways 0",
		"up --lease-duration 5s":                      "set both",
		"up --idle-timeout soon":                      `"soon"`,
		"up --drain-grace -1s":                        "--drain-grace -1s",
		"up --domain a.test":                          "--domain a.test: needs --tls",
		"up --tls --domain localhost":                 "*.localhost",
		"up --tls --domain a.test:443":                "without a port",
		"up --tls --port 0":                           "it holds mine",
		"up --isolation some":                         `--isolation "some"`,
		"up --port " + used:                           "port " + used + " on 127.0.0.1 is in use",
		"down --nonsense":                             "unknown flag",
		"status":                                      "not running",
		"logs":                                        "no logs",
		"logs a b":                                    "accepts at most 1 arg",
		"kubectl get pods":                            "not running",
		"kubectl --state":                             "needs an argument: --state",
		"network-policies --closed-ranges 10.0.0.1/8": "did you mean 10.0.0.0/8",
		"envoy-config --output toml":                  `--output "toml"`,
		"envoy-config --listen nowhere":               "--listen nowhere",
		"envoy-config --listen 127.0.0.1:0":           "1 to 65535",
		"envoy-config --listen localhost:1":           "must be an IP address",
		"envoy-config --tls-cert a":                   "needs its key",
		"envoy-config --max-streams -1":               "max streams -1",
		"envoy-config --file /none/e":                 "write /none/e",
		"node --subnet x":                             "--subnet",
		"version extra":                               "extra",
		"prepare extra":                               "extra",
	} {
		args := strings.Fields(line)
		switch args[0] {
		case "up", "down", "status", "logs":
			args = append(args, "--state", state)
		case "kubectl":
			if args[1] != "--state" {
				args = append([]string{"kubectl", "--state", state}, args[1:]...)
			}
		}
		code, stdout, stderr := run(t, args...)
		if code == 0 || stdout != "" || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d\nstdout %q\nstderr %q\nwant one line with %q", line, code, stdout, stderr, want)
		}
	}
}

func TestHelp(t *testing.T) {
	lines := []string{"-h", ""}
	for _, c := range newRoot().Commands() {
		if c.Name() != "no-help-command" {
			lines = append(lines, c.Name()+" -h")
		}
	}
	for _, line := range lines {
		code, stdout, stderr := run(t, strings.Fields(line)...)
		if code != 0 || !strings.Contains(stdout, "Usage:") || stderr != "" {
			t.Errorf("%q: exit code %d\nstdout %q\nstderr %q", line, code, stdout, stderr)
		}
	}
}

func TestDownWithoutUp(t *testing.T) {
	if code, stdout, stderr := run(t, "down", "--state", t.TempDir()); code != 0 || !strings.Contains(stdout, "not running") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

func TestEnvoyConfig(t *testing.T) {
	code, stdout, stderr := run(t, "envoy-config", "--run-dir", "/r", "--listen", "[::]:9000", "-o", "json")
	if code != 0 || !json.Valid([]byte(stdout)) || !strings.Contains(stdout, "9000") || !strings.Contains(stdout, "/r/extproc.sock") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	if code, stdout, _ := run(t, "envoy-config"); code != 0 || !strings.Contains(stdout, "\nstatic_resources:\n") {
		t.Errorf("exit code %d, %s", code, stdout)
	}
}

// An init container writes the file into a folder that others may read already.
func TestEnvoyConfigFile(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := t.TempDir()
	file := filepath.Join(dir, "envoy.yaml")
	_, want, _ := run(t, "envoy-config", "--run-dir", "/r")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	old, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if code, stdout, stderr := run(t, "envoy-config", "--run-dir", "/r", "--file", file); code != 0 || stdout != "" || stderr != "" {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != want {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode() != 0o644 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if before, err := io.ReadAll(old); err != nil || string(before) != "old" {
		t.Errorf("who had opened the file reads %q, %v", before, err)
	}
	// What fails leaves nothing behind.
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := run(t, "envoy-config", "--file", filepath.Join(dir, "folder")); code == 0 || strings.Count(stderr, "\n") != 1 {
		t.Errorf("a folder for a file: exit code %d, %q", code, stderr)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("the folder holds %v, %v", left, err)
	}
}

// Who runs Envoy by the documentation runs it as `up` does.
func TestDocumentedEnvoyArguments(t *testing.T) {
	text, err := os.ReadFile("../../docs/images.md")
	if want := strings.Join(envoy.Args("/run/sandlane/envoy.yaml", 2), " "); err != nil || !strings.Contains(string(text), want) {
		t.Errorf("docs/images.md lacks %q: %v", want, err)
	}
}

func TestVersion(t *testing.T) {
	if code, stdout, _ := run(t, "version"); code != 0 || !strings.Contains(stdout, "kubernetes v1.") || !strings.Contains(stdout, "envoy 1.") {
		t.Errorf("exit code %d, %q", code, stdout)
	}
}

func TestKubectlArgs(t *testing.T) {
	for line, want := range map[string]string{
		"":                          "|",
		"get pods --state x":        "|get pods --state x",
		"--state d get":             "d|get",
		"--state=d -n x get --wide": "d|-n x get --wide",
	} {
		state, rest, err := kubectlArgs(strings.Fields(line))
		if got := state + "|" + strings.Join(rest, " "); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
}

// The last lines of a start can be pasted, also with a state folder of one's own.
func TestBanner(t *testing.T) {
	t.Setenv("HOME", "/home/x")
	t.Setenv("XDG_STATE_HOME", "")
	up := local.UpFile{GatewayURL: "http://127.0.0.1:1", APIKey: "e2b_1", Gateways: []local.GatewayInfo{
		{Name: "gateway", URL: "http://127.0.0.1:1"}, {Name: "gateway-2", URL: "http://127.0.0.1:2"},
	}}
	var usual, own bytes.Buffer
	banner(&usual, "/home/x/.local/state/sandlane", up, "Ctrl-C")
	banner(&own, "/s", up, "Ctrl-C")
	for _, want := range []string{"Sandlane is up.", "~/.local/state/sandlane ", "stop with Ctrl-C", "e2b_1", "http://127.0.0.1:1/\n", "gateway-2   http://127.0.0.1:2\n", "end hello\n", "kubectl get"} {
		if !strings.Contains(usual.String(), want) {
			t.Errorf("the banner lacks %q:\n%s", want, usual.String())
		}
	}
	for _, want := range []string{"kubectl --state /s get", "end --state /s hello"} {
		if !strings.Contains(own.String(), want) {
			t.Errorf("the banner lacks %q:\n%s", want, own.String())
		}
	}
}

// With TLS the lines set every variable that the SDKs need, and unset what would
// win over them. A shell takes the words for what they are.
func TestBannerWithTLS(t *testing.T) {
	up := local.UpFile{
		GatewayURL: "https://127.0.0.1:1", Domain: "d.test:1", APIKey: "e2b_1",
		CAFile: "/s/tls/d.test/ca.crt", NodeResolve: "/s/tls/node/d.test.cjs",
	}
	var plain, odd bytes.Buffer
	banner(&plain, "/s", up, "")
	up.CAFile, up.NodeResolve = "/my state/it's/ca.crt", `/my state/it's/"x".cjs`
	banner(&odd, "/my state", up, "")
	for _, tc := range []struct {
		out  *bytes.Buffer
		want []string
	}{
		{&plain, []string{
			"curl --cacert /s/tls/d.test/ca.crt -H", "https://127.0.0.1:1/\n", "  unset E2B_API_URL E2B_SANDBOX_URL\n",
			"export E2B_API_KEY=e2b_1  E2B_DOMAIN=d.test:1\n", "export SSL_CERT_FILE=/s/tls/d.test/ca.crt ",
			"export NODE_EXTRA_CA_CERTS=/s/tls/d.test/ca.crt  NODE_OPTIONS=--require=/s/tls/node/d.test.cjs ",
		}},
		{&odd, []string{
			"kubectl --state '/my state' get", `curl --cacert '/my state/it'\''s/ca.crt' -H`,
			`NODE_OPTIONS='--require="/my state/it'\''s/\"x\".cjs"' `,
		}},
	} {
		for _, want := range tc.want {
			if !strings.Contains(tc.out.String(), want) {
				t.Errorf("the banner lacks %q:\n%s", want, tc.out)
			}
		}
	}
}

// A detached start is the one that was asked for. The domain is refused without
// TLS, so neither goes without the other.
func TestUpArgs(t *testing.T) {
	for want, o := range map[string]local.Options{
		"":                      {},
		"--tls --domain a.test": {TLS: true, Domain: "a.test"},
	} {
		got := strings.Join(upArgs(&o), " ")
		if strings.Contains(got, "--tls") != o.TLS || strings.Contains(got, "--domain") != o.TLS || !strings.HasSuffix(got, want) {
			t.Errorf("%+v: %s, want %q", o, got, want)
		}
	}
}
