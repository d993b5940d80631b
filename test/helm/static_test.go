package helm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// refused are values that the schema does not take, and what it must say.
var refused = []struct{ set, want string }{
	{"gateway.replicas=0", "gateway/replicas"},
	{"gateway.replica=3", "'replica'"},
	{"service.type=Wide", "service/type"},
	{"closedRanges={10.0.0.0}", "closedRanges"},
	{"poolNamespaces={Team_A}", "poolNamespaces"},
	{"envoy.image=", "envoy/image"},
}

// static renders the chart with each file of testdata/matrix and has the API server
// judge every object.
func (c *cluster) static(t *testing.T) {
	c.run(t, "helm", "lint", "--strict", c.chart)
	for _, tc := range refused {
		_, err := c.Run(t.Context(), "helm", "template", "sandlane", c.chart, "--set", tc.set)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("--set %s: %v, want it refused with %q", tc.set, err, tc.want)
		}
	}
	const dry, keys = "dry-system", "dry-keys"
	for _, ns := range []string{dry, keys, "team-a", "team-b"} {
		c.kubectl(t, "create", "namespace", ns)
	}
	matrix, err := filepath.Glob("testdata/matrix/*.yaml")
	if err != nil || len(matrix) == 0 {
		t.Fatalf("no values in testdata/matrix: %v", err)
	}
	for _, values := range matrix {
		rendered := c.run(t, "helm", "template", "sandlane", c.chart, "-n", dry, "--set", "keyNamespace.name="+keys, "-f", testdata(t, "matrix/"+filepath.Base(values)))
		file := filepath.Join(t.TempDir(), "rendered.yaml")
		if err := os.WriteFile(file, []byte(rendered), 0o600); err != nil {
			t.Fatal(err)
		}
		out := c.kubectl(t, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", file)
		if n, want := strings.Count(out, "serverside-applied"), strings.Count(rendered, "\nkind: "); n != want || n < 20 {
			t.Errorf("%s: the API server has taken %d of %d objects:\n%s", values, n, want, out)
		}
	}
	c.kubectl(t, "delete", "namespace", dry, keys, "team-a", "team-b")
}
