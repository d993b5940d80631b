package helm

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// byEnv is the env that the cases name: two pools like base, which keep no pods.
const byEnv = `{"apiVersion":"sandlane.dev/v1alpha1","kind":"SandboxTemplate","metadata":{"name":"by-env"},"spec":{"template":{"spec":{
"automountServiceAccountToken":false,"enableServiceLinks":false,"terminationGracePeriodSeconds":1,"containers":[{"name":"main","image":"sandlane-test-base:test",
"imagePullPolicy":"IfNotPresent","ports":[{"name":"envd","containerPort":49983}],"readinessProbe":{"httpGet":{"path":"/health","port":49983},"periodSeconds":1}}]}}}}
{"apiVersion":"sandlane.dev/v1alpha1","kind":"SandboxEnv","metadata":{"name":"by-env","namespace":"default"},"spec":{"templateRef":{"name":"by-env"},
"clusters":[{"clusterID":"local","members":[{"name":"by-env-a","spec":{"replicas":0}},{"name":"by-env-b","spec":{"replicas":0}}]}]}}`

// cases runs what test/e2b runs of E2B's Python SDK against this installation.
func (c *cluster) cases(t *testing.T, python string) {
	c.apply(t, byEnv)
	c.eventually(t, func(out string) bool { return len(strings.Fields(out)) == 2 }, "kubectl", "get", "sandboxpools", "-l", "sandlane.dev/env=by-env", "-o", "name")
	script, err := filepath.Abs("../../conformance/sdk/python/cases.py")
	if err != nil {
		t.Fatal(err)
	}
	// All requests go through one gateway, as in test/e2b, because another gateway learns of
	// an end a moment later. The case of too many wrong keys uses another gateway, since each
	// gateway counts them.
	gateways := c.addresses(t, "sandlane-gateway")
	out := c.run(t, "sh", "-c", `export E2B_API_KEY="$(cat "$0")" E2B_SANDBOX_URL="http://$1:8080" E2B_API_URL="http://$1:8080" TEST_ELSEWHERE_URL="http://$2:8080" \
		TEST_DOMAIN=sandlane.test TEST_SERVER=webserver TEST_BOOT_ID=node; exec "$3" "$4" sync`, c.keyFile(t), gateways[0], gateways[1], python, script)
	worked := 0
	for line := range strings.Lines(out) {
		var r struct {
			Name, Error string
			OK          bool
			MS          float64
		}
		if json.Unmarshal([]byte(line), &r) != nil || r.Name == "" {
			continue
		}
		if r.OK {
			worked++
		} else {
			t.Errorf("%s: %s", r.Name, r.Error)
		}
	}
	fmt.Printf("      %d cases of E2B's SDK worked\n", worked)
	if worked < 40 {
		t.Errorf("only %d cases worked:\n%s", worked, out)
	}
	c.kubectl(t, "delete", "sandboxenv", "by-env", "--timeout=60s")
	c.kubectl(t, "delete", "sandboxtemplate", "by-env", "--timeout=60s")
}
