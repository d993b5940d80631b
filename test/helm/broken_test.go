package helm

import (
	"fmt"
	"strings"
	"testing"
)

// sandboxPool is a pool of the echo image.
const sandboxPool = `{"apiVersion":"sandlane.dev/v1alpha1","kind":"SandboxPool","metadata":{"name":%q,"namespace":"default"},"spec":{"replicas":1,
"firstRequest":{"access":"Public"},"template":{"template":{"spec":{"terminationGracePeriodSeconds":1,"containers":[
{"name":"main","image":%q,"imagePullPolicy":"IfNotPresent","readinessProbe":{"httpGet":{"path":"/","port":8000},"periodSeconds":1}}]}}}}}`

func (c *cluster) apply(t *testing.T, object string) {
	t.Helper()
	c.run(t, "sh", "-c", `printf '%s' "$0" | kubectl apply -f -`, object)
}

// idlePod waits until a pool has one idle pod, and returns it.
func (c *cluster) idlePod(t *testing.T, pool string) (name, uid string) {
	t.Helper()
	out := c.eventually(t, func(out string) bool { return len(strings.Fields(out)) == 2 }, "kubectl", "get", "pods",
		"-l", "sandlane.dev/phase=idle,sandlane.dev/pool="+pool, "-o", "jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {end}")
	name, uid, _ = strings.Cut(out, " ")
	return name, uid
}

// processes are the IDs of the node's processes whose command line has a text; if a pod's
// UID is given, only those of that pod.
func (c *cluster) processes(t *testing.T, command, podUID string) []string {
	t.Helper()
	return strings.Fields(c.run(t, "sh", "-c", `for p in /proc/[0-9]*; do
		[ "$p" = "/proc/$$" ] && continue
		tr '\0' ' ' <"$p/cmdline" 2>/dev/null | grep -q -- "$0" || continue
		grep -q -- "$1" "$p/cgroup" && echo "${p#/proc/}"
	done; true`, command, podUID))
}

// kill signals those processes.
func (c *cluster) kill(t *testing.T, command, podUID, signal string) {
	t.Helper()
	pids := c.processes(t, command, podUID)
	if len(pids) == 0 {
		t.Fatalf("no process has %q in its command line (pod %q)", command, podUID)
	}
	c.run(t, "kill", append([]string{"-" + signal}, pids...)...)
}

// A pool whose image does not exist reports that, does not affect other pools, and works as
// soon as its image is right.
func (c *cluster) missingImage(t *testing.T) {
	c.apply(t, fmt.Sprintf(sandboxPool, "absent", "sandlane-test-none:none"))
	c.eventually(t, func(out string) bool { return strings.HasPrefix(out, "True ErrImagePull ") }, "kubectl", "get", "sandboxpool", "absent",
		"-o", `jsonpath={range .status.conditions[?(@.type=="Degraded")]}{.status} {.reason} {.message}{end}`)
	c.process(t, "beside")
	c.apply(t, fmt.Sprintf(sandboxPool, "absent", "sandlane-test-echo:test"))
	c.idlePod(t, "absent")
	c.kubectl(t, "delete", "sandboxpool", "absent", "--timeout=60s")
	c.eventually(t, func(out string) bool { return out == "" }, "kubectl", "get", "pods", "-l", "sandlane.dev/pool=absent", "-o", "name")
}

// An idle pod whose program crashed can be claimed again as soon as its kubelet has restarted
// it and it is Ready, since no sandbox has used it.
func (c *cluster) crashIdle(t *testing.T) {
	name, uid := c.idlePod(t, "echo")
	c.kill(t, "echo", uid, "KILL")
	c.eventually(t, func(out string) bool { return out == "1 true idle" }, "kubectl", "get", "pod", name, "-o",
		`jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready} {.metadata.labels.sandlane\.dev/phase}`)
}

// podOf is the pod of a sandbox.
func (c *cluster) podOf(t *testing.T, id string) (name, uid string) {
	t.Helper()
	name, uid, _ = strings.Cut(c.kubectl(t, "get", "sandbox", id, "-o", "jsonpath={.spec.binding.podName} {.spec.binding.podUID}"), " ")
	return name, uid
}

// ended waits until a sandbox has ended for the reason, its pod is gone, and requests
// to it fail.
func (c *cluster) ended(t *testing.T, id, podUID string, reasons ...string) {
	t.Helper()
	c.eventually(t, func(out string) bool {
		for _, reason := range reasons {
			if out == "Ended "+reason {
				return true
			}
		}
		return false
	}, "kubectl", "get", "sandbox", id, "-o", "jsonpath={.status.phase} {.spec.end.reason}")
	c.eventually(t, func(out string) bool { return !strings.Contains(out, podUID) }, "kubectl", "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}")
	out := c.run(t, "curl", "-sS", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}", "-H", "X-Sandbox-Id: "+id, "-H", "X-Sandbox-Port: 8000", c.gateway(t)+"/")
	if out != "502" {
		t.Errorf("an ended sandbox is answered with %s, want 502", out)
	}
}

// A sandbox whose program crashed ends, since the kubelet starts a new container without
// the user's state.
func (c *cluster) crashSandbox(t *testing.T) {
	c.process(t, "crashes")
	_, uid := c.podOf(t, "crashes")
	c.kill(t, "echo", uid, "KILL")
	c.ended(t, "crashes", uid, "Failed")
	c.idlePod(t, "echo")
}

// An eviction ends the sandbox of the pod, and its pool gets another pod.
func (c *cluster) evict(t *testing.T) {
	c.process(t, "evicted")
	name, uid := c.podOf(t, "evicted")
	c.run(t, "sh", "-c", `printf '{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"%s","namespace":"default"}}' "$0" |
		kubectl create --raw "/api/v1/namespaces/default/pods/$0/eviction" -f -`, name)
	c.ended(t, "evicted", uid, "Failed")
	c.idlePod(t, "echo")
}
