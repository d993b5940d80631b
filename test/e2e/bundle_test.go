package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// With a bundle, a machine that has no Go, no compiler, no Python and an empty home serves the
// first request within a minute; of a bundle that another key signed nothing is used.
func TestUpFromABundle(t *testing.T) {
	t.Parallel()
	takeTurn(t)
	release, state, before := t.TempDir(), stateDir(t), machine(t)
	home := t.TempDir()
	key, other := filepath.Join(release, "key"), filepath.Join(release, "other")
	must := func(env []string, args ...string) {
		t.Helper()
		if code, out := attempt(t, env, nil, args...); code != 0 {
			t.Fatalf("sandlane %s: %d\n%s", strings.Join(args, " "), code, out)
		}
	}
	must(os.Environ(), "bundle", "key", key)
	must(os.Environ(), "bundle", "key", other)
	must(os.Environ(), "bundle", "make", release, "--key", key)

	bare := []string{"HOME=" + home, "PATH=" + home}
	up := func(publisher string) []string {
		return []string{
			"up", "--detach", "--state", state, "--port", "0", "--isolation", "full", "--pool-size", "1", "--base-pool-size", "1", "--interpreter-pool-size", "0",
			"--bundle", release, "--bundle-key", publisher + ".pub",
		}
	}
	code, out := attempt(t, bare, nil, up(other)...)
	wantOneLine(t, code, out, "signature is not of this key")
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
		t.Errorf("of a bundle of another key is left: %v, %v", left, err)
	}
	wantClean(t, state, before)

	began := time.Now()
	must(bare, up(key)...)
	defer must(bare, "down", "--state", state)
	text, err := os.ReadFile(filepath.Join(state, "up.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		GatewayURL string `json:"gatewayURL"`
	}
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
	t.Logf("the first request was answered %v after `up --bundle` began", time.Since(began).Round(100*time.Millisecond))
	must(bare, "kubectl", "--state", state, "get", "sandbox", "hello")
}
