package sandboxd

import (
	"os"
	"path/filepath"
	"testing"
)

// Programs find out from files which sandbox they are in, as with E2B. What an
// accepted /init said first stays, and a refused one says nothing.
func TestIdentityFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run", "e2b")
	g := newGateway("pod-1")
	a := newAgent(t, g.options(Options{RunDir: dir}))
	want := func(what string, files map[string]string) {
		t.Helper()
		for _, name := range []string{".E2B_SANDBOX", ".E2B_SANDBOX_ID", ".E2B_TEMPLATE_ID"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if value, there := files[name]; there != (err == nil) || string(text) != value {
				t.Errorf("%s: %s: %q, %v, want %q", what, name, text, err, value)
			}
		}
	}
	init := func(status int, body, sandbox string) {
		t.Helper()
		g.init(a, status, "", body, "Sandlane-Sandbox-Id", sandbox, "Sandlane-Template-Id", "base")
	}
	a.want(204, "", "GET", "/health", "") // it serves: what it does at its start is done
	want("before /init", map[string]string{".E2B_SANDBOX": "true"})
	a.want(401, "", "POST", "/init", "{}", "Sandlane-Sandbox-Id", "forged", "Sandlane-Template-Id", "base")
	want("after a refused /init", map[string]string{".E2B_SANDBOX": "true"})
	g.init(a, 204, "", "{}")
	want("after one that names nothing", map[string]string{".E2B_SANDBOX": "true"})
	all := map[string]string{".E2B_SANDBOX": "true", ".E2B_SANDBOX_ID": "i0", ".E2B_TEMPLATE_ID": "base"}
	init(204, "{}", "i0")
	want("after /init", all)
	init(409, `{"envVars":{"A":"b"}}`, "other")
	init(204, "{}", "other")
	want("after another", all)
}

// A folder that cannot be written is no reason not to serve.
func TestIdentityWithoutFiles(t *testing.T) {
	a := newAgent(t, Options{RunDir: "/proc/none"})
	a.want(204, "", "POST", "/init", "{}", "Sandlane-Sandbox-Id", "i0")
	if r := a.start(shell("echo $E2B_SANDBOX_ID")).wait(); r.stdout.String() != "i0\n" {
		t.Errorf("%q", r.stdout.String())
	}
}
