package helm

import (
	"fmt"
	"testing"
	"time"
)

// step is one step of a test on a node.
type step struct {
	name string
	run  func(*testing.T)
}

// steps are those of TestNode. python is an interpreter that has E2B's SDK.
func (c *cluster) steps(python string) []step {
	return []step{
		{"install", c.install},
		{"team", c.team},
		{"claims timed", c.timeClaims},
		{"image that is not there", c.missingImage},
		{"crash of an idle pod", c.crashIdle},
		{"crash of a sandbox", c.crashSandbox},
		{"eviction", c.evict},
		{"image changed and recycled in place", c.recycleInPlace},
		{"post-start hook", func(t *testing.T) { c.postStartHook(t, python) }},
		{"memory used up", func(t *testing.T) { c.python(t, python, "memory.py") }},
		{"E2B's cases", func(t *testing.T) { c.cases(t, python) }},
		{"kubelet and containerd killed", c.killKubelet},
		{"API server away", c.stopAPIServer},
		{"gateway killed", c.killGateway},
		{"controller killed", c.killController},
		{"gateways rolled under load", c.rollGateways},
		{"gateways rolled back under load", c.rollBack},
		{"controllers rolled under load", c.rollControllers},
		{"certificates renewed under load", c.renewCertificates},
		{"keys of /init rotated under load", func(t *testing.T) { c.rotateInitKeys(t, python) }},
		{"images pulled by digest", c.pulled},
		{"network policies enforced", func(t *testing.T) { c.policies(t, python) }},
		{"uninstall that ends sandboxes", c.endAndUninstall},
		{"upgrade of the first CRDs", c.upgradeCRDs},
		{"uninstall that keeps nothing", c.uninstallAll},
	}
}

// TestNode is what happens to an installation on a real node: pods that break,
// processes that are killed, rollouts and rotations while requests flow. `make
// node-test` runs it. Its steps need the first two, and the last three each other;
// the others leave things as they were.
func TestNode(t *testing.T) {
	python := pythonSDK(t)
	c := boot(t, "")
	for i, step := range c.steps(python) {
		began := time.Now()
		if !t.Run(step.name, step.run) && i < 2 {
			return
		}
		fmt.Printf("    %-36s %5.1f s\n", step.name, time.Since(began).Seconds())
	}
}
