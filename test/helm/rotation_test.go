package helm

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// leaves are the certificates that gateways show controllers.
func (c *cluster) leaves(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, ip := range c.addresses(t, "sandlane-gateway") {
		var leaf string
		c.startClient(t, "leaf", ip+":9443").wait(t, &leaf)
		all = append(all, leaf)
	}
	return all
}

// New certificates of the control plane are used without a restart: no request fails, and
// ends are carried out, for which the controller calls gateways with them.
func (c *cluster) renewCertificates(t *testing.T) {
	const gateways = `jsonpath={range .items[*]}{.metadata.deletionTimestamp}|{.metadata.name}|{.status.containerStatuses[0].restartCount} {end}`
	running := func() []string { // without pods of an earlier rollout that are ending
		all := strings.Fields(c.kubectl(t, "-n", system, "get", "pods", "-l", "app=sandlane-gateway", "-o", gateways))
		return slices.DeleteFunc(all, func(pod string) bool { return !strings.HasPrefix(pod, "|") })
	}
	process, before, same := c.process(t, "mine"), c.leaves(t), running()
	a := c.during(t, "mine", func() {
		c.kubectl(t, "-n", system, "delete", "secret", "sandlane-control-gateway", "sandlane-control-controller")
		c.kubectl(t, "-n", system, "create", "job", "renew", "--from=cronjob/sandlane-control-certs")
		c.kubectl(t, "-n", system, "wait", "--for=condition=Complete", "job/renew", "--timeout=60s")
		// A kubelet looks at a pod's Secrets once a minute, and when the pod changes.
		c.kubectl(t, "-n", system, "annotate", "pods", "-l", "app in (sandlane-gateway,sandlane-controller)", "test=renewed", "--overwrite")
		c.untilRenewed(t, before)
		// Open connections keep the certificates with which they were opened.
		c.kubectl(t, "-n", system, "rollout", "restart", "deployment/sandlane-controller")
		c.ready(t, "sandlane-controller")
		c.process(t, "after-renewal")
		_, uid := c.podOf(t, "after-renewal")
		c.run(t, c.sandlane, "end", "--kubeconfig", c.Kubeconfig(), "after-renewal")
		c.ended(t, "after-renewal", uid, "Released", "Completed", "Deleted")
		c.idlePod(t, "echo")
	})
	a.sameProcess(t, process)
	a.noneFailed(t)
	if now := running(); !slices.Equal(now, same) {
		t.Errorf("the gateways are %q, and were %q", now, same)
	}
	c.kubectl(t, "-n", system, "delete", "job", "renew")
}

func (c *cluster) untilRenewed(t *testing.T, before []string) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for tick := time.NewTicker(500 * time.Millisecond); time.Now().Before(deadline); <-tick.C {
		now := c.leaves(t)
		if len(now) == len(before) && !slices.ContainsFunc(now, func(leaf string) bool { return slices.Contains(before, leaf) }) {
			return
		}
	}
	t.Fatal("the gateways still show their old certificates")
}

// After two rotations of the keys of /init, a pod that was made before them and one that was
// made after them are both claimed and initialised.
func (c *cluster) rotateInitKeys(t *testing.T, python string) {
	const idle = "sandlane.dev/pool=base,sandlane.dev/phase=idle," + v1alpha1.LabelInitKey
	two := func(out string) bool { return len(strings.Fields(out)) == 2 }
	shown := func() string {
		return c.run(t, c.sandlane, "initkeys", "show", "--kubeconfig", c.Kubeconfig())
	}
	process := c.process(t, "mine")
	a := c.during(t, "mine", func() {
		keys := []string{shown()}
		c.eventually(t, two, "kubectl", "get", "pods", "-o", "name", "-l", idle+"="+keys[0])
		for range 2 {
			c.run(t, c.sandlane, "initkeys", "rotate", "--kubeconfig", c.Kubeconfig())
			keys = append(keys, shown())
		}
		if keys[0] == keys[1] || keys[1] == keys[2] || keys[0] == keys[2] {
			t.Fatalf("the keys are %q", keys)
		}
		c.sdk(t, python)
		c.kubectl(t, "delete", "pods", "-l", idle+"="+keys[0])
		c.eventually(t, two, "kubectl", "get", "pods", "-o", "name", "-l", idle+"="+keys[2])
		c.sdk(t, python)
	})
	a.sameProcess(t, process)
	a.noneFailed(t)
}
