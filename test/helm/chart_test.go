package helm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/sdkenv"
)

// TestChart is the life of one installation. Each step needs the ones before, so the test
// ends with the first step that fails.
func TestChart(t *testing.T) {
	python := pythonSDK(t)
	c := boot(t, "")
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"static checks", c.static},
		{"install", c.install},
		{"team", c.team},
		{"page", func(t *testing.T) { c.page(t, python) }},
		{"helm test", c.helmTest},
		{"SDK", func(t *testing.T) { c.sdk(t, python) }},
		{"first request", func(t *testing.T) { c.firstRequest(t) }},
		{"metrics", c.metrics},
		{"log level", c.logLevel},
		{"hibernation", func(t *testing.T) { c.hibernate(t, python) }},
		{"upgrade", c.upgrade},
		{"resume after the upgrade", func(t *testing.T) { c.resume(t, python) }},
		{"SDK after the upgrade", func(t *testing.T) { c.sdk(t, python) }},
		{"refused uninstall", c.refuseUninstall},
		{"uninstall", c.uninstall},
	} {
		began := time.Now()
		if !t.Run(step.name, step.run) {
			return
		}
		fmt.Printf("    %-24s %5.1f s\n", step.name, time.Since(began).Seconds())
	}
}

// pythonSDK installs E2B's Python SDK into the user's cache, if it is not there, and
// returns the interpreter that has it.
func pythonSDK(t *testing.T) string {
	t.Helper()
	lock, err := filepath.Abs("../../conformance/sdk/python/e2b-2.63.0.lock")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	bin := sdkenv.Python(t.Context(), t, lock)
	fmt.Printf("    E2B's Python SDK %5.1f s\n", time.Since(began).Seconds())
	return filepath.Join(bin, "python")
}

// The API server refuses every pod in the system namespace that is not
// "restricted".
func (c *cluster) install(t *testing.T) {
	c.kubectl(t, "create", "namespace", system)
	c.kubectl(t, "label", "namespace", system, "pod-security.kubernetes.io/enforce=restricted")
	c.makeVolume(t)
	notes := c.run(t, "helm", append([]string{"install", "sandlane", c.chart, "-n", system, "-f", testdata(t, "values.yaml"), "--wait", "--timeout", "180s"}, c.values...)...)
	for _, want := range []string{"export E2B_DOMAIN=sandlane.test\n", " https://sandbox.sandlane.test/\n"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
	for _, deployment := range []string{"sandlane-gateway", "sandlane-controller"} {
		c.kubectl(t, "-n", system, "rollout", "status", "deployment/"+deployment, "--timeout=5s")
	}
}

// team installs the tenants' chart with pools, a key made beside the cluster, and
// limits. Each pool gets its warm pods, by their real readiness probes.
func (c *cluster) team(t *testing.T) {
	dir := c.tempDir(t)
	keys, said := filepath.Join(dir, "keys.yaml"), filepath.Join(dir, "said")
	c.run(t, "sh", "-c", `exec "$0" apikey values >"$1" 2>"$2"`, c.sandlane, keys, said)
	c.key, _, _ = strings.Cut(text(t, said), "\n")
	for _, set := range []string{"pools.Base.replicas=1", "pools.base.maxPods=1", "keys[0].id=1", "pool=x"} {
		if _, err := c.Run(t.Context(), "helm", "template", "team", c.chart+"-tenant", "--set", set); err == nil {
			t.Errorf("--set %s is taken", set)
		}
	}
	c.kubectl(t, "label", "namespace", "default", "sandlane.dev/pools=allowed")
	c.run(t, "helm", "install", "team", c.chart+"-tenant", "-n", "default", "-f", testdata(t, "team.yaml"), "-f", keys)
	for pool, idle := range map[string]string{"base": "2", "echo": "1"} {
		c.eventually(t, func(out string) bool { return out == idle }, "kubectl", "get", "sandboxpool", pool, "-o", "jsonpath={.status.idle}")
	}
}

func (c *cluster) gateway(t *testing.T) string {
	t.Helper()
	return "http://" + c.kubectl(t, "-n", system, "get", "service", "sandlane", "-o", "jsonpath={.spec.clusterIP}")
}

// helmTest: the chart's own test passes with a good key, fails with a wrong key, and leaves
// nothing behind.
func (c *cluster) helmTest(t *testing.T) {
	wrong := filepath.Join(c.tempDir(t), "wrong")
	if err := os.WriteFile(wrong, []byte("e2b_0000000000000000000000000000000000000000"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		key    string
		passes bool
		want   []string
	}{
		{wrong, false, []string{"2 gateways, and their Service", "a sandbox of the REST API: make it of template base: answered with 401"}},
		{c.keyFile(t), true, []string{"2 gateways, and their Service", "a sandbox of template base was made", "a first request made a sandbox of pool default/echo"}},
	} {
		c.kubectl(t, "-n", system, "create", "secret", "generic", "check", "--from-file=api-key="+tc.key)
		out := c.run(t, "sh", "-c", `helm test sandlane -n "$0" --timeout 120s 2>&1; echo "exit $?"`, system)
		if strings.HasSuffix(out, "exit 0") != tc.passes {
			t.Errorf("passes %t, and helm test says\n%s", tc.passes, out)
		}
		for _, want := range tc.want {
			if !strings.Contains(out, want) {
				t.Errorf("helm test does not say %q:\n%s", want, out)
			}
		}
		c.kubectl(t, "-n", system, "delete", "secret", "check")
		c.eventually(t, func(out string) bool { return out == "" }, "kubectl", "-n", system, "get", "jobs,pods,serviceaccounts,roles,rolebindings",
			"-o", `jsonpath={.items[?(@.metadata.name=="sandlane-check")].metadata.name}{.items[?(@.metadata.labels.app=="sandlane-check")].metadata.name}`)
	}
}

// sdk runs a first program that uses E2B's SDK.
func (c *cluster) sdk(t *testing.T, python string) { c.python(t, python, "sdk.py") }

// keyFile writes the API key to a file and returns its path. The key must not be in a
// command, because a step that fails logs its commands and their output.
func (c *cluster) keyFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(c.tempDir(t), "key")
	if err := os.WriteFile(file, []byte(c.key), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// python runs a program of testdata that uses the SDK, and returns what it printed.
func (c *cluster) python(t *testing.T, python, program string, args ...string) string {
	t.Helper()
	line := append([]string{"-c", `export E2B_API_KEY="$(cat "$0")" E2B_API_URL="$1" E2B_SANDBOX_URL="$1"; shift; exec "$@"`,
		c.keyFile(t), c.gateway(t), python, testdata(t, program)}, args...)
	out := c.run(t, "sh", line...)
	if !strings.Contains(out, "passed") {
		t.Errorf("the SDK's program printed %q", out)
	}
	return out
}

// process sends a request to a sandbox, which the first request makes, and returns which
// process answers. more are further arguments of curl.
func (c *cluster) process(t *testing.T, id string, more ...string) string {
	t.Helper()
	const mark = `"process":"`
	args := append([]string{"-fsS", "--max-time", "30", "-H", "X-Sandbox-Id: " + id, "-H", "X-Sandbox-Port: 8000", c.gateway(t) + "/hello"}, more...)
	out := c.eventually(t, func(out string) bool { return strings.Contains(out, mark) }, "curl", args...)
	_, after, _ := strings.Cut(out, mark)
	process, _, _ := strings.Cut(after, `"`)
	return process
}

// A sandbox that does not exist gets a pod by its first request, and keeps it.
func (c *cluster) firstRequest(t *testing.T) string {
	first := c.process(t, "mine")
	for range 5 {
		if now := c.process(t, "mine"); now != first {
			t.Errorf("the process %s answers, want %s", now, first)
		}
	}
	return first
}

// An upgrade rolls both Deployments, and keeps the control plane's certificates and the
// running sandboxes.
func (c *cluster) upgrade(t *testing.T) {
	certificates := func() string {
		return c.kubectl(t, "-n", system, "get", "secret", "sandlane-control-ca", "sandlane-control-gateway", "sandlane-control-controller", "-o", "jsonpath={.items[*].data}")
	}
	before, process := certificates(), c.process(t, "mine")
	c.run(t, "helm", "upgrade", "sandlane", c.chart, "-n", system, "-f", testdata(t, "values.yaml"),
		"--set", "gateway.podAnnotations.test=upgrade", "--set", "controller.podAnnotations.test=upgrade", "--wait", "--timeout", "180s")
	if certificates() != before {
		t.Error("the upgrade has changed the control plane's certificates")
	}
	if now := c.firstRequest(t); now != process {
		t.Errorf("after the upgrade the process %s answers, want %s", now, process)
	}
}

// uninstalled runs `helm uninstall`.
func (c *cluster) uninstalled(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	_, err := c.Run(ctx, "helm", "uninstall", "sandlane", "-n", system, "--wait=legacy", "--cascade=foreground", "--timeout", "180s")
	return err
}

// refuseUninstall: while a sandbox lives, an uninstallation is refused and changes nothing.
func (c *cluster) refuseUninstall(t *testing.T) {
	process := c.process(t, "mine")
	if err := c.uninstalled(t); err == nil {
		t.Fatal("uninstalled while a sandbox lives")
	}
	logs := c.kubectl(t, "-n", system, "logs", "job/sandlane-uninstall-empty")
	if !strings.Contains(logs, "sandboxes live (1)") {
		t.Errorf("the Job says %q, want that one sandbox lives", logs)
	}
	if now := c.process(t, "mine"); now != process {
		t.Errorf("after the refusal the process %s answers, want %s", now, process)
	}
}

// After an uninstallation nothing is left but what docs/install.md names: the CRDs,
// pools without pods, the namespace of API keys, the claim of checkpoints, and Secrets.
func (c *cluster) uninstall(t *testing.T) {
	// Helm upgrades no release whose uninstallation was refused, so the value
	// uninstall.endSandboxes cannot be set now; the command does the same.
	c.run(t, c.sandlane, "uninstall", "empty", "--kubeconfig", c.Kubeconfig(), "--end-sandboxes")
	if err := c.uninstalled(t); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"sandboxes", "pods -n default"} {
		if out := c.kubectl(t, append([]string{"get", "-o", "name"}, strings.Fields(kind)...)...); out != "" {
			t.Errorf("%s are left:\n%s", kind, out)
		}
	}
	if pools := c.kubectl(t, "get", "sandboxpools", "-A", "-o", "name"); strings.Count(pools, "sandboxpool") != 2 {
		t.Errorf("pools are %q, want both kept", pools)
	}
	var left []string
	for line := range strings.Lines(c.kubectl(t, "get", "deployments,pods,services,cronjobs,jobs,serviceaccounts,roles,rolebindings,clusterroles,"+
		"clusterrolebindings,poddisruptionbudgets,validatingadmissionpolicies,validatingadmissionpolicybindings,namespaces", "-A", "-o", "name")) {
		if name := strings.TrimSpace(line); strings.Contains(name, "sandlane") && !strings.HasPrefix(name, "namespace/") &&
			// The team's release is still installed.
			!strings.Contains(name, "/sandlane-tenant") && !(strings.HasPrefix(name, "rolebinding") && strings.HasSuffix(name, "-pools")) {
			left = append(left, name)
		}
	}
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if claim := c.kubectl(t, "-n", system, "get", "persistentvolumeclaim", "sandlane-checkpoints", "-o", "jsonpath={.status.phase}"); claim != "Bound" {
		t.Errorf("the claim of checkpoints is %q, want it kept", claim)
	}
	// The controller deletes the checkpoints of the step hibernate within a minute.
	if on := c.archives(t); len(on) != 0 {
		t.Errorf("on the volume are still %q", on)
	}
	leases := c.kubectl(t, "-n", system, "get", "leases", "-l", "sandlane.dev/gateway", "-o", "name")
	if leases != "" {
		t.Errorf("leases of gateways are left:\n%s", leases)
	}
}
