package node

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/local/node/network"
	"github.com/sandlane/sandlane/local/node/process"
	"github.com/sandlane/sandlane/test/kubetest"
)

// TestPodsAreIsolated looks from inside a pod for everything it must not see.
func TestPodsAreIsolated(t *testing.T) {
	n := startNode(t, IsolationFull)
	n.create(t, echoPod("a"), echoPod("b"))
	a, b := n.await(t, "a", "is ready", isReady), n.await(t, "b", "is ready", isReady)
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	gateway := network.GatewayOf(n.opts.Subnet).String()
	// The missing route alone would keep pods apart; so must the bridge.
	port := "/sys/class/net/" + network.VethName(stateHash(n.opts.StateDir), netip.MustParseAddr(a.Status.PodIP)) + "/brport/isolated"
	if raw, err := os.ReadFile(port); string(raw) != "1\n" {
		t.Errorf("the pod's port on the bridge is not isolated: %q, %v", raw, err)
	}
	connect := func(ip, port string) string {
		return "timeout 2 bash -c '</dev/tcp/" + ip + "/" + port + "'"
	}
	for _, c := range []struct {
		what, script string
		want         int // exit code; -1 is anything but 0
	}{
		{"own server by loopback", connect("127.0.0.1", "8000"), 0},
		{"own server by address", connect(a.Status.PodIP, "8000"), 0},
		{"other pod's server", connect(b.Status.PodIP, "8000"), -1},
		{"the internet", connect("192.0.2.1", "80"), -1},
		{"state folder", "test -e " + n.opts.StateDir, 1},
		{"image table", "cat " + n.opts.Images, -1},
		{"helper folder", "test -e " + n.opts.HelperDir, 1},
		{"home is empty", "test -z \"$(ls -A " + home + ")\"", 0},
		{"the machine's /tmp", "test -z \"$(ls -A /tmp)\"", 0},
		{"no other processes", `test "$(ls -d /proc/[0-9]* | wc -l)" -le 8`, 0},
		{"no process of the machine", "cat /proc/[0-9]*/comm | grep -e etcd -e kube-apiserver", -1},
		{"/usr is read-only", "touch /usr/x", -1},
		{"/etc is read-only", "touch /etc/x", -1},
		{"/ is small", "dd if=/dev/zero of=/x bs=1M count=4", -1},
		{"/home can be written", "echo x > /home/x && test -s /home/x", 0},
		{"/etc/shadow", "test -e /etc/shadow", 1},
		{"/sys", "test -e /sys/kernel", 1},
		{"own use of memory", "cat /sys/fs/cgroup/memory.current /sys/fs/cgroup/memory/memory.usage_in_bytes 2>/dev/null | grep -q '[1-9]'", 0},
		{"processes are bounded", "grep -qx 4096 /sys/fs/cgroup/pids.max || grep -qx 4096 /sys/fs/cgroup/pids/pids.max", 0},
		{"own limits cannot be changed", "echo 1 > /sys/fs/cgroup/memory.max || echo 1 > /sys/fs/cgroup/memory/memory.limit_in_bytes", -1},
		{"kernel settings", "echo x > /proc/sys/kernel/core_pattern", -1},
		{"own boot ID", "echo x > /proc/sys/kernel/random/boot_id", -1},
		{"sysrq", "echo h > /proc/sysrq-trigger", -1},
		{"mounting", "mount -t tmpfs x /mnt", -1},
		{"raw sockets", "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'", -1},
		{"routes", "ip route add default via " + gateway, -1},
		{"no new privileges", "grep -q 'NoNewPrivs:.1' /proc/self/status", 0},
		{"a group's folder", "install -d -g 1000 -m 2775 /tmp/shared; test $(stat -c %a /tmp/shared) = 2775", 0},
		{"devices", "ls /dev/vda /dev/sda /dev/kmsg /dev/mem", -1},
		{"host name", "test $(hostname) = a", 0},
		{"user", "test $(id -un) = root", 0},
		{"image's variable", "test $FROM_IMAGE = 1", 0},
		{"user of SDKs", `test "$(getent passwd user | cut -d: -f3,6,7)" = 1000:/home/user:/bin/bash -a "$(stat -c %U /home/user)" = user`, 0},
		{"a terminal device", "test -c /dev/ptmx -a -c /dev/null -a -d /dev/shm", 0},
		{"python beside python3", `test "$(bash -lc 'python -c "print(6*7)"')" = 42`, 0},
		{"python and a pty", "python3 -c 'import pty; pty.openpty()'", 0},
	} {
		code, out := n.exec(t, "a", "bash", "-c", c.script)
		if c.want >= 0 && code != c.want || c.want < 0 && code == 0 {
			t.Errorf("%s: %q exits with %d: %s", c.what, c.script, code, out)
		}
	}
	n.create(t, shellPod("quiet", "exec sleep 1000"))
	n.await(t, "quiet", "is ready", isReady)
	if _, out := n.exec(t, "quiet", "sh", "-c", "echo $(ls /proc/1/fd)"); out != "0 1 2\n" {
		t.Errorf("a new process has the descriptors %q", out)
	}
	imaged := shellPod("imaged", "pwd > /tmp/first; id >> /tmp/first; exec sleep 1000")
	imaged.Spec.Containers[0].Image = "local/imaged"
	n.create(t, imaged)
	n.await(t, "imaged", "is ready", isReady)
	for _, script := range []string{"until grep -q uid /tmp/first; do sleep 0.01; done 2>/dev/null; cat /tmp/first", "pwd; id"} {
		if _, out := n.exec(t, "imaged", "sh", "-c", script); !strings.HasPrefix(out, "/home/user\nuid=1000(user) gid=1000(user)") {
			t.Errorf("%s: the image's directory and user are not used: %q", script, out)
		}
	}
	var wantCaps uint64
	for _, c := range process.KeptCaps {
		wantCaps |= 1 << c
	}
	_, caps := n.exec(t, "a", "grep", "CapBnd", "/proc/self/status")
	if got, _ := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(caps, "CapBnd:")), 16, 64); got != 0x800004fb {
		t.Errorf("bounding set %x", got)
	}
}

// exec runs a command in a pod's container through the provider's path.
func (n *testNode) exec(t testing.TB, pod string, args ...string) (int, string) {
	t.Helper()
	p := n.record(t, pod)
	p.mu.Lock()
	proc := p.containers[0].proc
	p.mu.Unlock()
	if proc == nil {
		t.Fatalf("%s does not run", pod)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out bytes.Buffer
	code, err := proc.Exec(ctx, args, process.Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		return -1, err.Error()
	}
	return code, out.String()
}

// record is the provider's record of a pod.
func (n *testNode) record(t testing.TB, name string) *pod {
	t.Helper()
	p, err := n.provider().find(n.ns, name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestReachableByPhase: a pool pod can be reached from the machine only while
// its phase label says so, though its probe passes throughout.
func TestReachableByPhase(t *testing.T) {
	n := startNode(t, IsolationFull)
	n.create(t, echoPod("a", func(p *corev1.Pod) {
		p.Labels = map[string]string{v1alpha1.LabelPool: "echo", v1alpha1.LabelPhase: string(v1alpha1.PodWarming)}
	}))
	pod := n.await(t, "a", "is ready", isReady)
	if _, err := ask(t.Context(), pod.Status.PodIP); err == nil {
		t.Error("a warming pod can be reached")
	}
	for _, c := range []struct {
		phase v1alpha1.PodPhase
		want  bool
	}{{v1alpha1.PodIdle, true}, {v1alpha1.PodStarting, true}, {v1alpha1.PodRunning, true}, {v1alpha1.PodStopping, false}, {v1alpha1.PodFailed, false}} {
		patch := `{"metadata":{"labels":{"` + v1alpha1.LabelPhase + `":"` + string(c.phase) + `"}}}`
		if _, err := n.client.CoreV1().Pods(n.ns).Patch(t.Context(), "a", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		kubetest.Eventually(t, string(c.phase), func() error {
			_, err := ask(t.Context(), pod.Status.PodIP)
			if (err == nil) == c.want {
				return nil
			}
			return os.ErrInvalid
		})
	}
}

// TestSixtyPods reports how long many pods take.
func TestSixtyPods(t *testing.T) {
	n := startNode(t, IsolationFull)
	begun := time.Now()
	const many = 60
	for i := range many {
		n.create(t, echoPod("p"+strconv.Itoa(i)))
	}
	created := time.Since(begun)
	seen := map[string]bool{}
	for i := range many {
		seen[n.await(t, "p"+strconv.Itoa(i), "is ready", isReady).Status.PodIP] = true
	}
	t.Logf("%d pods: created in %s, all ready after %s", many, created.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond))
	if len(seen) != many {
		t.Errorf("%d addresses for %d pods", len(seen), many)
	}
	begun = time.Now()
	grace := int64(1)
	if err := n.client.CoreV1().Pods(n.ns).DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &grace}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range many {
		n.awaitGone(t, "p"+strconv.Itoa(i))
	}
	t.Logf("all deleted after %s", time.Since(begun).Round(time.Millisecond))
	if left, _ := filepath.Glob("/sys/class/net/" + "sl" + stateHash(n.opts.StateDir) + "v*"); len(left) > 0 {
		t.Errorf("links left: %v", left)
	}
}
