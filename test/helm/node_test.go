package helm

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/sdkenv"
)

// TestNode is what happens to an installation on a real node: pods that break,
// processes that are killed, rollouts while requests flow. `make node-test` runs it.
// Its steps need the first two; the others leave things as they were.
func TestNode(t *testing.T) {
	lock, err := filepath.Abs("../e2b/python/e2b-2.63.0.lock")
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(sdkenv.Python(t.Context(), t, lock), "python")
	c := boot(t)
	for i, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"install", c.install},
		{"team", c.team},
		{"image that is not there", c.missingImage},
		{"crash of an idle pod", c.crashIdle},
		{"crash of a sandbox", c.crashSandbox},
		{"eviction", c.evict},
		{"post-start hook", func(t *testing.T) { c.postStartHook(t, python) }},
		{"memory used up", func(t *testing.T) { c.python(t, python, "memory.py") }},
		{"kubelet and containerd killed", c.killKubelet},
		{"API server away", c.stopAPIServer},
		{"gateway killed", c.killGateway},
		{"controller killed", c.killController},
		{"gateways rolled under load", c.rollGateways},
		{"controllers rolled under load", c.rollControllers},
		{"uninstall that ends sandboxes", c.endAndUninstall},
	} {
		began := time.Now()
		if !t.Run(step.name, step.run) && i < 2 {
			return
		}
		fmt.Printf("    %-32s %5.1f s\n", step.name, time.Since(began).Seconds())
	}
}
