package helm

import (
	"strings"
	"testing"
	"time"
)

// pause waits for d, because the test is about a state of that duration. It does not wait for
// a condition.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// Sandboxes answer requests while kubelet and containerd are killed; once both are back,
// pools are filled again.
func (c *cluster) killKubelet(t *testing.T) {
	process := c.process(t, "mine")
	a := c.during(t, "mine", func() {
		c.kill(t, "/kubelet --config", "", "KILL")
		c.kill(t, "/containerd --config", "", "KILL")
		c.eventually(t, func(out string) bool { return out == "ok" }, "kubectl", "get", "--raw", "/api/v1/nodes/"+c.Name+"/proxy/healthz")
		c.process(t, "after-kubelet")
		c.idlePod(t, "echo")
	})
	a.sameProcess(t, process)
	a.noneFailed(t)
	c.kubectl(t, "delete", "sandbox", "after-kubelet", "--timeout=60s")
}

// While the API server is stopped, requests reach running sandboxes; afterwards first
// requests and ends work again.
func (c *cluster) stopAPIServer(t *testing.T) {
	process := c.process(t, "mine")
	a := c.during(t, "mine", func() {
		c.kill(t, "/kube-apiserver --etcd", "", "STOP")
		pause(t, 40*time.Second)
		c.kill(t, "/kube-apiserver --etcd", "", "CONT")
		c.process(t, "after-api")
	})
	a.sameProcess(t, process)
	a.noneFailed(t)
	c.kubectl(t, "delete", "sandbox", "after-api", "--timeout=60s")
}

// ready waits until all pods of an app are Ready.
func (c *cluster) ready(t *testing.T, app string) {
	t.Helper()
	c.kubectl(t, "-n", system, "rollout", "status", "deployment/"+app, "--timeout=120s")
}

// When a gateway is killed, only requests through its Envoy fail, until the Service does not
// route to that Envoy any more, and no request gets a wrong answer.
func (c *cluster) killGateway(t *testing.T) {
	process := c.process(t, "mine")
	uid := c.ofPods(t, "sandlane-gateway", "metadata.uid")[0]
	restarts := func() string {
		return c.kubectl(t, "-n", system, "get", "pods", "-l", "app=sandlane-gateway", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
	}
	before := restarts()
	a := c.during(t, "mine", func() {
		c.kill(t, "sandlane gateway", uid, "KILL")
		c.eventually(t, func(out string) bool { return out != before }, "kubectl", "-n", system, "get", "pods", "-l", "app=sandlane-gateway",
			"-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
		c.ready(t, "sandlane-gateway")
	})
	a.sameProcess(t, process)
	for status, n := range a.failed {
		if status != "500" && status != "503" || n > a.ok {
			t.Errorf("%d requests failed with %s beside %d answers", n, status, a.ok)
		}
	}
	again := c.during(t, "mine", func() { pause(t, 3*time.Second) })
	again.sameProcess(t, process)
	again.noneFailed(t)
}

// After all controllers were killed, ends are carried out and pools filled, once the
// leader's lease is over.
func (c *cluster) killController(t *testing.T) {
	process := c.process(t, "mine")
	c.process(t, "ends")
	_, uid := c.podOf(t, "ends")
	a := c.during(t, "mine", func() {
		c.kill(t, "sandlane controller", "", "KILL")
		c.run(t, c.sandlane, "end", "--kubeconfig", c.Kubeconfig(), "ends")
		c.ended(t, "ends", uid, "Released", "Completed", "Deleted")
		c.idlePod(t, "echo")
		c.ready(t, "sandlane-controller")
	})
	a.sameProcess(t, process)
	a.noneFailed(t)
}

// roll upgrades the release with a change of one Deployment's pods.
func (c *cluster) roll(t *testing.T, value string) {
	t.Helper()
	c.run(t, "helm", "upgrade", "sandlane", c.chart, "-n", system, "--reset-then-reuse-values", "--set", value, "--wait", "--timeout", "180s")
}

// rolled sends requests and keeps a WebSocket open through each of the two gateways while
// something replaces both. No request fails, and each WebSocket lasts for its grace.
func (c *cluster) rolled(t *testing.T, happens func()) {
	t.Helper()
	process, gateways := c.process(t, "mine"), c.addresses(t, "sandlane-gateway")
	leaving := c.watchLeaving(t, "sandlane-gateway")
	client := c.startClient(t, "sockets", append(append([]string{"mine"}, gateways...), gateways...)...)
	client.open(t)
	a := c.during(t, "mine", happens)
	a.sameProcess(t, process)
	a.noneFailed(t)
	var sockets []socket
	client.wait(t, &sockets)
	livedOn(t, sockets, leaving.times(t))
	if len(sockets) != 4 {
		t.Errorf("%d WebSockets, want two through each of two gateways", len(sockets))
	}
}

func (c *cluster) rollGateways(t *testing.T) {
	c.rolled(t, func() { c.roll(t, "gateway.podAnnotations.test=rolled") })
}

// A rollback is a roll like any other.
func (c *cluster) rollBack(t *testing.T) {
	c.rolled(t, func() { c.run(t, "helm", "rollback", "sandlane", "-n", system, "--wait", "--timeout", "180s") })
}

func (c *cluster) rollControllers(t *testing.T) {
	process := c.process(t, "mine")
	a := c.during(t, "mine", func() {
		c.roll(t, "controller.podAnnotations.test=rolled")
		c.process(t, "after-roll")
		c.idlePod(t, "echo")
	})
	a.sameProcess(t, process)
	a.noneFailed(t)
}

// With uninstall.endSandboxes an uninstallation ends the sandboxes that are left.
func (c *cluster) endAndUninstall(t *testing.T) {
	c.roll(t, "uninstall.endSandboxes=true")
	if err := c.uninstalled(t); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"sandboxes", "pods -n default"} {
		if out := c.kubectl(t, append([]string{"get", "-o", "name"}, strings.Fields(kind)...)...); out != "" {
			t.Errorf("%s are left:\n%s", kind, out)
		}
	}
}
