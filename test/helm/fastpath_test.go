package helm

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestFastPath is the fast path on a real node: Envoy's image with the module, a tmpfs
// that gateway and Envoy share, upgrades between both modes, and killed processes.
// `hack/helm-test.sh fastpath` runs it.
func TestFastPath(t *testing.T) {
	c := boot(t, "")
	for i, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"install", c.install},
		{"team", c.team},
		{"hits answered inside Envoy", c.fastPath},
		{"uninstall that ends sandboxes", c.endAndUninstall},
	} {
		began := time.Now()
		if !t.Run(step.name, step.run) && i < 2 {
			return
		}
		fmt.Printf("    %-32s %5.1f s\n", step.name, time.Since(began).Seconds())
	}
}

// fastPath: an upgrade turns the fast path on and another one turns it off. In between every
// gateway's Envoy answers hits by itself, also after the gateway and the Envoy were killed,
// and no answer comes from another sandbox.
func (c *cluster) fastPath(t *testing.T) {
	process := c.process(t, "mine")
	c.rolled(t, func() { c.roll(t, "fastPath.enabled=true,fastPath.image=sandlane-test-envoy:test") })
	c.answersInEnvoy(t, process, "the upgrade")
	c.killGateway(t)
	c.answersInEnvoy(t, process, "a gateway was killed")
	c.killEnvoy(t, process)
	c.answersInEnvoy(t, process, "an Envoy was killed")
	c.rollGateways(t)
	c.answersInEnvoy(t, process, "a rollout")
	c.rolled(t, func() { c.roll(t, "fastPath.enabled=false") })
	if now := c.process(t, "mine"); now != process {
		t.Errorf("without the fast path the process %s answers, want %s", now, process)
	}
}

// answersInEnvoy waits until each gateway's Envoy answers requests for the sandbox "mine"
// by itself.
func (c *cluster) answersInEnvoy(t *testing.T, process, after string) {
	t.Helper()
	const ask = `for i in 1 2 3 4 5 6 7 8 9 10; do
		curl -fsS --max-time 15 -H 'X-Sandbox-Id: mine' -H 'X-Sandbox-Port: 8000' "http://$0:8080/" || exit 1
	done
	curl -fsS --max-time 15 "http://$0:9102/metrics" | grep '^sandlane_fastpath_requests_total{result="hit"}'`
	for _, at := range c.addresses(t, "sandlane-gateway") {
		first := -1.0
		c.eventually(t, func(out string) bool {
			for part := range strings.SplitSeq(out, `"process":"`) {
				if id, _, ok := strings.Cut(part, `"`); ok && len(id) == 26 && id != process {
					t.Errorf("after %s the process %s answers through %s, want %s", after, id, at, process)
				}
			}
			hits, err := strconv.ParseFloat(out[strings.LastIndex(out, " ")+1:], 64)
			if err == nil && first < 0 {
				first = hits
			}
			return err == nil && hits >= first+10
		}, "sh", "-c", ask, at)
	}
}

// killEnvoy: only the requests to the killed Envoy fail, until it serves again.
func (c *cluster) killEnvoy(t *testing.T, process string) {
	uid := c.ofPods(t, "sandlane-gateway", "metadata.uid")[0]
	const restarts = "jsonpath={.items[*].status.initContainerStatuses[?(@.name==\"envoy\")].restartCount}"
	pods := []string{"-n", system, "get", "pods", "-l", "app=sandlane-gateway", "-o", restarts}
	before := c.kubectl(t, pods...)
	a := c.during(t, "mine", func() {
		c.kill(t, "/usr/local/bin/envoy", uid, "KILL")
		c.eventually(t, func(out string) bool { return out != before }, "kubectl", pods...)
		c.ready(t, "sandlane-gateway")
	})
	a.sameProcess(t, process)
	for status, n := range a.failed {
		if status != "000" && status != "500" && status != "503" || n > a.ok {
			t.Errorf("%d requests failed with %s beside %d answers", n, status, a.ok)
		}
	}
}
