package helm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// refused are values that the schema must refuse, and a part of the error message for each.
var refused = []struct{ set, want string }{
	{"gateway.replicas=0", "gateway/replicas"},
	{"gateway.replica=3", "'replica'"},
	{"service.type=Wide", "service/type"},
	{"closedRanges={10.0.0.0}", "closedRanges"},
	{"envoy.image=", "envoy/image"},
	{"imageDigests.gateway=sha256:12", "imageDigests/gateway"},
	{"service.externalTrafficPolicy=Near", "externalTrafficPolicy"},
	{"monitoring.monitor=Pod", "monitoring/monitor"},
	{"monitoring.interval=often", "monitoring/interval"},
	{"gateway.extraEnv[0].value=1", "extraEnv"},
	{"certificate.secretName=Two_Names", "certificate/secretName"},
	{"ingress.host=example.com", "'host'"},
	{"checkpoints.size=much", "checkpoints/size"},
	{"checkpoints.maxPerKey=-1", "checkpoints/maxPerKey"},
	{"templates.registry=registry.example", "templates/registry"},
	{"templates.bases={docker.io/*/x}", "templates/bases"},
	// Values that a schema cannot refuse.
	{"templates.registry=registry.example/t,networkPolicies.enabled=true,networkPolicies.apiServerRanges={10.0.0.1/32}", "registryRanges must name"},
	{"ingress.enabled=true", "gateway.domain must be set"},
	{"httpRoute.enabled=true,gateway.domain=x.example", "httpRoute.parentRefs must name a Gateway"},
	{"certificate.enabled=true,gateway.domain=x.example", "certificate.issuerRef.name must name an issuer"},
	{"gateway.autoscaling.enabled=true,gateway.autoscaling.minReplicas=11", "minReplicas must be at most maxReplicas"},
	{"tests.firstRequest.path=hello", "firstRequest/path"},
	{"tests.template=base", "tests.apiKeySecret must name a Secret"},
	{"egress.enabled=true", "egress.serviceAddress must be a free IPv4 address"},
	{"egress.serviceAddress=fd00::53", "egress/serviceAddress"},
	{"egress.open={git.example.com}", "egress/open"},
	{"egress.upstreamProxy=proxy.example.com:3128", "egress/upstreamProxy"},
	{"egress.enabled=true,egress.serviceAddress=10.96.0.53,egress.autoscaling.enabled=true,egress.autoscaling.minReplicas=11", "egress.autoscaling.minReplicas must be at most maxReplicas"},
	{"gateway.drainDelaySeconds=400", "drainDelaySeconds must be at most drainGraceSeconds"},
}

// One sandbox may take a quarter of the streams, and at least one.
var shares = []struct{ set, want string }{
	{"envoy.maxStreams=500", "--max-open-per-sandbox=125\n"},
	{"envoy.maxStreams=2", "--max-open-per-sandbox=1\n"},
}

// static renders the chart with each file of testdata/matrix and makes the API server
// validate every object.
func (c *cluster) static(t *testing.T) {
	c.run(t, "helm", "lint", "--strict", c.chart)
	c.run(t, "helm", "lint", "--strict", c.chart+"-tenant", "-f", testdata(t, "team.yaml"))
	for _, tc := range refused {
		_, err := c.Run(t.Context(), "helm", "template", "sandlane", c.chart, "--set", tc.set)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("--set %s: %v, want it refused with %q", tc.set, err, tc.want)
		}
	}
	for _, tc := range shares {
		if out := c.run(t, "helm", "template", "sandlane", c.chart, "--set", tc.set); !strings.Contains(out, tc.want) {
			t.Errorf("--set %s: rendered without %q", tc.set, tc.want)
		}
	}
	const dry, keys = "dry-system", "dry-keys"
	for _, ns := range []string{dry, keys} {
		c.kubectl(t, "create", "namespace", ns)
	}
	// The objects that the chart makes for other operators are validated by their definitions.
	definitions := os.Getenv("EXTRA_CRDS")
	if definitions == "" {
		t.Fatal("EXTRA_CRDS is not set: run `make helm-test`")
	}
	c.kubectl(t, "create", "-f", definitions)
	c.kubectl(t, "wait", "--for=condition=Established", "--timeout=30s", "-f", definitions)
	matrix, err := filepath.Glob("testdata/matrix/*.yaml")
	if err != nil || len(matrix) == 0 {
		t.Fatalf("no values in testdata/matrix: %v", err)
	}
	for _, values := range matrix {
		rendered := c.run(t, "helm", "template", "sandlane", c.chart, "-n", dry, "--set", "keyNamespace.name="+keys, "-f", testdata(t, "matrix/"+filepath.Base(values)))
		file := filepath.Join(c.tempDir(t), "rendered.yaml")
		if err := os.WriteFile(file, []byte(rendered), 0o600); err != nil {
			t.Fatal(err)
		}
		out := c.kubectl(t, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", file)
		if n, want := strings.Count(out, "serverside-applied"), strings.Count(rendered, "\nkind: "); n != want || n < 20 {
			t.Errorf("%s: the API server has taken %d of %d objects:\n%s", values, n, want, out)
		}
	}
	c.kubectl(t, "delete", "-f", definitions)
	c.kubectl(t, "delete", "namespace", dry, keys)
}
