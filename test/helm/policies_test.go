package helm

import (
	"fmt"
	"strings"
	"testing"
)

// strangerPod is a pod that has nothing to do with Sandlane, and listens as one of a
// pool does.
const strangerPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"stranger","namespace":"stranger"},"spec":{"terminationGracePeriodSeconds":1,
"containers":[{"name":"main","image":"sandlane-test-base:test","imagePullPolicy":"IfNotPresent","readinessProbe":{"tcpSocket":{"port":49983},"periodSeconds":1}}]}}`

// connect is a script that tries a TCP connection to host $0, port $1, and prints "open" if
// it is open within two seconds, "refused" or "dropped".
const connect = `(exec 3<>/dev/tcp/$0/$1) 2>/dev/null & p=$!
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	kill -0 $p 2>/dev/null || { wait $p && echo open || echo refused; exit; }
	sleep 0.1
done
kill -9 $p; echo dropped`

// within is the beginning of a command line, which runs the rest of it in a pod's network.
type within []string

func inPod(namespace, pod string) within {
	return within{"kubectl", "exec", "-n", namespace, pod, "--"}
}

// inNetworkOf is within for a pod without a shell.
func (c *cluster) inNetworkOf(t *testing.T, command, podUID string) within {
	t.Helper()
	pids := c.processes(t, command, podUID)
	if len(pids) == 0 {
		t.Fatalf("no process of pod %s has %q in its command line", podUID, command)
	}
	return within{"nsenter", "-t", pids[0], "-n", "--"}
}

// way is a connection to try; closed says that enforced policies must drop it.
type way struct {
	from          within
	address, port string
	closed        bool
}

// tryWays tries each connection; before policies are enforced all must be open.
func (c *cluster) tryWays(t *testing.T, ways []way, enforced bool) {
	t.Helper()
	for _, w := range ways {
		args := append(append(within{}, w.from...), "/bin/bash", "-c", connect, w.address, w.port)
		out := c.run(t, args[0], args[1:]...)
		if want := map[bool]string{true: "dropped", false: "open"}[w.closed && enforced]; out != want {
			t.Errorf("policies enforced: %t: by %q to %s port %s is %s, want %s", enforced, w.from, w.address, w.port, out, want)
		}
	}
}

// policies: while the test's network plugin enforces NetworkPolicies, Sandlane works, and the
// connections that must be closed are closed.
func (c *cluster) policies(t *testing.T, python string) {
	c.kubectl(t, "create", "namespace", "stranger")
	c.apply(t, strangerPod)
	c.kubectl(t, "-n", "stranger", "wait", "--for=condition=Ready", "pod/stranger", "--timeout=60s")
	c.roll(t, "networkPolicies.enabled=true,networkPolicies.apiServerRanges={10.89.0.1/32}")
	pods := strings.Fields(c.eventually(t, func(out string) bool { return len(strings.Fields(out)) == 4 }, "kubectl", "get", "pods",
		"-l", "sandlane.dev/phase=idle,sandlane.dev/pool=base", "-o", "jsonpath={range .items[*]}{.metadata.name} {.status.podIP} {end}"))
	other := c.kubectl(t, "-n", "stranger", "get", "pod", "stranger", "-o", "jsonpath={.status.podIP}")
	gateway, controller := c.addresses(t, "sandlane-gateway")[0], c.addresses(t, "sandlane-controller")[0]
	uid := c.kubectl(t, "-n", system, "get", "pods", "-l", "app=sandlane-gateway", "-o", `jsonpath={.items[?(@.status.podIP=="`+gateway+`")].metadata.uid}`)
	stranger, sandbox, fromGateway := inPod("stranger", "stranger"), inPod("default", pods[0]), c.inNetworkOf(t, "sandlane gateway", uid)
	ways := []way{
		{stranger, gateway, "8080", false},
		{stranger, gateway, "9443", true},
		{stranger, gateway, "9102", true},
		{stranger, controller, "9102", true},
		{stranger, pods[3], "49983", true},
		{sandbox, pods[3], "49983", true},
		{sandbox, gateway, "9443", true},
		{sandbox, "10.96.0.1", "443", true}, // the API server, by its Service
		{sandbox, "10.89.0.1", "6443", true},
		{sandbox, "10.89.0.1", "10250", true}, // the kubelet
		{fromGateway, pods[3], "49983", false},
		{fromGateway, "10.96.0.1", "443", false},
		{fromGateway, other, "49983", true}, // a pod that belongs to no pool
	}
	c.tryWays(t, ways, false)
	stand := c.startClient(t, "enforce")
	stand.open(t)
	c.tryWays(t, ways, true)
	process := c.process(t, "mine")
	c.sdk(t, python)
	c.process(t, "policed")
	_, of := c.podOf(t, "policed")
	c.run(t, c.sandlane, "end", "--kubeconfig", c.Kubeconfig(), "policed")
	c.ended(t, "policed", of, "Released", "Completed", "Deleted")
	c.idlePod(t, "echo")
	if now := c.process(t, "mine"); now != process {
		t.Errorf("the process %s answers, want %s", now, process)
	}
	if err := stand.Close(); err != nil {
		t.Fatal(err)
	}
	var tables int
	stand.wait(t, &tables)
	fmt.Printf("      the stand-in for a network plugin wrote %d tables\n", tables)
	c.kubectl(t, "delete", "namespace", "stranger", "--timeout=60s")
	c.run(t, "helm", "rollback", "sandlane", "-n", system, "--wait", "--timeout", "180s")
}
