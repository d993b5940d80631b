package helm

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// firstChart is a chart with only the first version of the CRDs (22 November 2026, before
// envs and pauses). The upgrade begins from it as long as there is no release.
func (c *cluster) firstChart(t *testing.T) string {
	t.Helper()
	f, err := os.Open(testdata(t, "crds-first.yaml.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	packed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	crds, err := io.ReadAll(packed)
	if err != nil {
		t.Fatal(err)
	}
	dir := c.tempDir(t)
	if err := os.Mkdir(filepath.Join(dir, "templates"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"Chart.yaml":          "apiVersion: v2\nname: sandlane\nversion: 0.0.1\n",
		"values.yaml":         "crds: {install: true, keep: true}\n",
		"templates/crds.yaml": string(crds),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// definitions are the names of Sandlane's CRDs.
func (c *cluster) definitions(t *testing.T) []string {
	t.Helper()
	var ours []string
	for _, name := range strings.Fields(c.kubectl(t, "get", "crds", "-o", "name")) {
		if strings.HasSuffix(name, ".sandlane.dev") {
			ours = append(ours, name)
		}
	}
	return ours
}

// An upgrade updates the CRDs, and keeps pools that were made before. The chart has the CRDs
// as templates, because Helm does not upgrade other CRDs. The test needs an empty cluster.
func (c *cluster) upgradeCRDs(t *testing.T) {
	c.kubectl(t, "delete", "sandboxpools", "--all", "-A", "--timeout=60s")
	c.kubectl(t, append([]string{"delete", "--timeout=60s"}, c.definitions(t)...)...)
	c.run(t, "helm", "install", "sandlane", c.firstChart(t), "-n", system, "--wait", "--timeout", "60s")
	first := c.definitions(t)
	c.apply(t, fmt.Sprintf(sandboxPool, "echo", "sandlane-test-echo:test"))
	uid := c.kubectl(t, "get", "sandboxpool", "echo", "-o", "jsonpath={.metadata.uid}")
	c.run(t, "helm", "upgrade", "sandlane", c.chart, "-n", system, "-f", testdata(t, "values.yaml"), "--wait", "--timeout", "180s")
	if now := c.definitions(t); len(now) <= len(first) {
		t.Errorf("the definitions are %q, and were %q", now, first)
	}
	c.kubectl(t, "explain", "sandboxenv.spec")        // a new kind
	c.kubectl(t, "explain", "sandboxpool.spec.pause") // a new field
	if now := c.kubectl(t, "get", "sandboxpool", "echo", "-o", "jsonpath={.metadata.uid}"); now != uid {
		t.Errorf("the pool is %s, want %s, which was made before", now, uid)
	}
	c.process(t, "mine")
}

// With crds.keep=false an uninstallation also takes what stays otherwise: definitions,
// and with them pools, and the keys of gateways.
func (c *cluster) uninstallAll(t *testing.T) {
	c.roll(t, "crds.keep=false,uninstall.endSandboxes=true")
	if err := c.uninstalled(t); err != nil {
		t.Fatal(err)
	}
	c.eventually(t, func(out string) bool { return !strings.Contains(out, ".sandlane.dev") }, "kubectl", "get", "crds", "-o", "name")
	c.eventually(t, func(out string) bool {
		return !strings.Contains(out, "sandlane") && !strings.Contains(out, "token-seed") && !strings.Contains(out, "init-keys")
	}, "kubectl", "-n", system, "get", "secrets,configmaps,leases,jobs,pods", "-o", "name")
	if out := c.kubectl(t, "-n", "default", "get", "pods", "-o", "name"); out != "" {
		t.Errorf("pods are left:\n%s", out)
	}
}
