package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/sdkenv"
)

// With a bundle, a machine that has no Go, no compiler, no Python and an empty home serves the
// first request within a minute; of a bundle that another key signed nothing is used. E2B's SDK
// uses that stack from outside.
func TestUpFromABundle(t *testing.T) {
	t.Parallel()
	takeTurn(t)
	release, state, before := t.TempDir(), stateDir(t), machine(t)
	key, other := filepath.Join(release, "key"), filepath.Join(release, "other")
	for _, args := range [][]string{{"bundle", "key", key}, {"bundle", "key", other}, {"bundle", "make", release, "--key", key}} {
		if code, out := attempt(t, os.Environ(), nil, args...); code != 0 {
			t.Fatalf("sandlane %s: %d\n%s", strings.Join(args, " "), code, out)
		}
	}
	bare := newBareRoot(t, release, state)
	must := func(args ...string) {
		t.Helper()
		if code, out := bare.run(t, args...); code != 0 {
			t.Fatalf("sandlane %s: %d\n%s", strings.Join(args, " "), code, out)
		}
	}
	up := func(publisher string) []string {
		return []string{
			"up", "--detach", "--state", state, "--port", "0", "--isolation", "full", "--pool-size", "1", "--base-pool-size", "1", "--interpreter-pool-size", "0",
			"--bundle", release, "--bundle-key", publisher + ".pub",
		}
	}
	code, out := bare.run(t, up(other)...)
	wantOneLine(t, code, out, "signature is not of this key")
	if left, err := os.ReadDir(bare.Dir + bareHome); err != nil || len(left) > 0 {
		t.Errorf("of a bundle of another key is left: %v, %v", left, err)
	}
	wantClean(t, state, before)

	began := time.Now()
	must(up(key)...)
	defer must("down", "--state", state)
	started := firstRequest(t, state)
	took := time.Since(began)
	t.Logf("the first request was answered %v after `up --bundle` began", took.Round(100*time.Millisecond))
	must("kubectl", "--state", state, "get", "sandbox", "hello")

	python := filepath.Join(sdkenv.Python(t.Context(), t, "../../conformance/sdk/python/e2b-2.63.0.lock"), "python")
	began = time.Now()
	sdk := exec.CommandContext(t.Context(), python, "-c", `import os
from e2b import Sandbox
with Sandbox.create() as sandbox:
    out = sandbox.commands.run("echo from $HOME; ls /bin")
    assert out.stdout.startswith("from /home/user\n") and "python" not in out.stdout, out
os._exit(0)  # docs/e2b.md`)
	sdk.Env = []string{"E2B_API_KEY=" + started.APIKey, "E2B_API_URL=" + started.GatewayURL, "E2B_SANDBOX_URL=" + started.GatewayURL}
	if out, err := sdk.CombinedOutput(); err != nil {
		t.Errorf("the SDK's program: %v\n%s", err, out)
	}
	t.Logf("the SDK's program took %v", time.Since(began).Round(100*time.Millisecond))
}

// upFile is what up.json says of a stack.
type upFile struct {
	GatewayURL string `json:"gatewayURL"`
	APIKey     string `json:"apiKey"`
}

// firstRequest sends README's first request to a stack.
func firstRequest(t *testing.T, state string) upFile {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(state, "up.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file upFile
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, file.GatewayURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Sandbox-Id", "hello")
	req.Header.Set("X-Sandbox-Port", "8000")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the first request: %s", resp.Status)
	}
	return file
}

// A machine that has built only what answers a request serves, and builds the rest meanwhile:
// then namespaces end and kubectl is there. Go is a program that copies what was built before,
// once the first request is answered.
func TestUpBuildsTheRestMeanwhile(t *testing.T) {
	t.Parallel()
	takeTurn(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	home, state, before := t.TempDir(), stateDir(t), machine(t)
	// The cache may have programs of other versions, too.
	code, out := attempt(t, []string{"HOME=" + os.Getenv("HOME"), "XDG_CACHE_HOME=" + cache, "PATH=" + os.Getenv("PATH")}, nil, "prepare")
	said := regexp.MustCompile(`KUBEBUILDER_ASSETS='?([^'\s]+)`).FindStringSubmatch(out)
	if code != 0 || said == nil {
		t.Fatalf("sandlane prepare: %d\n%s", code, out)
	}
	gate, tools := filepath.Join(home, "go-on"), t.TempDir()
	goTool := `#!/bin/sh
case "$1" in env) echo /tmp; echo /tmp; exit ;; list) exit ;; esac
while [ ! -e ` + gate + ` ]; do sleep 0.1; done
for last; do :; done
while [ "$1" != -o ]; do shift; done
cp "$REAL_PROGRAMS/${last##*/}" "$2"
`
	if err := os.WriteFile(filepath.Join(tools, "go"), []byte(goTool), 0o755); err != nil {
		t.Fatal(err)
	}
	// The other folders of the cache are those of the machine.
	ours := filepath.Join(home, ".cache", "sandlane")
	if err := os.MkdirAll(ours, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"envoy", "images", "crds"} {
		if err := os.Symlink(filepath.Join(cache, "sandlane", name), filepath.Join(ours, name)); err != nil {
			t.Fatal(err)
		}
	}
	kube := said[1]
	if err := os.MkdirAll(filepath.Join(ours, "kube", filepath.Base(kube)), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := os.Symlink(filepath.Join(kube, name), filepath.Join(ours, "kube", filepath.Base(kube), name)); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"HOME=" + home, "PATH=" + tools + ":" + os.Getenv("PATH"), "REAL_PROGRAMS=" + kube}
	must := func(args ...string) string {
		t.Helper()
		code, out := attempt(t, env, nil, args...)
		if code != 0 {
			t.Fatalf("sandlane %s: %d\n%s", strings.Join(args, " "), code, out)
		}
		return out
	}
	must("up", "--detach", "--state", state, "--port", "0", "--isolation", "full", "--pool-size", "1", "--base-pool-size", "1", "--interpreter-pool-size", "0")
	defer func() {
		must("down", "--state", state)
		wantClean(t, state, before)
	}()
	firstRequest(t, state)
	if _, err := os.Stat(filepath.Join(ours, "kube", filepath.Base(kube), "kube-controller-manager")); err == nil {
		t.Fatal("the first request waited for the controller manager")
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	must("kubectl", "--state", state, "create", "namespace", "short")
	must("kubectl", "--state", state, "delete", "namespace", "short", "--timeout=2m") // ends only with the controller manager
	if out := must("status", "--state", state); !strings.Contains(out, "kube-controller-manager") {
		t.Errorf("the status does not show the controller manager:\n%s", out)
	}
}
