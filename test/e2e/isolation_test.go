package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// inside runs a shell line in the container of a pod and returns its output.
func inside(t *testing.T, ns, pod, line string) (string, error) {
	t.Helper()
	return shared.Run(t.Context(), "kubectl", "exec", "-n", ns, pod, "--", "/bin/sh", "-c", line)
}

// Two sandboxes listen on the same port on all addresses; none reaches, sees
// or reads anything of another or of the machine's user.
func TestIsolation(t *testing.T) {
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "pool", 3)
	a, b := shared.Touch(t, "isolated-a", ns+"/pool"), shared.Touch(t, "isolated-b", ns+"/pool")
	if a.PodUID == b.PodUID || a.Process == b.Process {
		t.Fatalf("both sandboxes are in %s", a.Pod)
	}
	address := addressOf(t, "isolated-b")
	out, err := inside(t, ns, a.Pod, "echo alive; id -u")
	if err != nil || !strings.Contains(out, "alive") {
		t.Fatalf("exec does not work, so nothing can be proved: %v\n%s", err, out)
	}

	t.Run("own server", func(t *testing.T) {
		out, err := inside(t, ns, a.Pod, probe("127.0.0.1:8000"))
		if err != nil || !strings.Contains(out, "CONNECTED") {
			t.Errorf("a sandbox cannot reach its own server, so the next test would prove nothing: %v %s", err, out)
		}
	})
	t.Run("another pod", func(t *testing.T) {
		if out, _ := inside(t, ns, a.Pod, probe(address+":8000")); strings.Contains(out, "CONNECTED") {
			t.Errorf("sandbox a reached b: %s", out)
		}
	})
	t.Run("idle pod", func(t *testing.T) {
		for _, p := range shared.PodsOf(t, ns) {
			if p.Name == a.Pod || p.Status.PodIP == "" {
				continue
			}
			if out, _ := inside(t, ns, a.Pod, probe(p.Status.PodIP+":8000")); strings.Contains(out, "CONNECTED") {
				t.Errorf("sandbox a reached pod %s: %s", p.Name, out)
			}
		}
	})
	t.Run("processes", func(t *testing.T) {
		out, err := inside(t, ns, a.Pod, `for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline; echo; done`)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, foreign := range []string{"kube-apiserver", "etcd", "envoy", "sandlane up", "gateway"} {
			if strings.Contains(out, foreign) {
				t.Errorf("the sandbox sees a process %q:\n%s", foreign, out)
			}
		}
		if n := strings.Count(out, "echo"); n > 3 {
			t.Errorf("the sandbox sees more than its own processes:\n%s", out)
		}
	})
	t.Run("files", func(t *testing.T) {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		mark := filepath.Join(home, fmt.Sprintf(".sandlane-e2e-%d", os.Getpid()))
		if err := os.WriteFile(mark, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.Remove(mark) }()
		for _, path := range []string{shared.State, shared.Up.Kubeconfig, mark, "/proc/1/root" + shared.Up.Kubeconfig, "/etc/shadow", shared.Bin} {
			if _, err := os.Stat(strings.TrimPrefix(path, "/proc/1/root")); err != nil {
				t.Fatalf("%s is not there on the machine either: %v", path, err)
			}
			if out, err := inside(t, ns, a.Pod, "ls -d "+path+" && cat "+path+" >/dev/null 2>&1 && echo READ"); err == nil {
				t.Errorf("the sandbox sees %s: %s", path, out)
			}
		}
	})
	t.Run("writes stay inside", func(t *testing.T) {
		if out, err := inside(t, ns, a.Pod, "echo a > /tmp/mark && cat /tmp/mark"); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		if out, err := inside(t, ns, b.Pod, "cat /tmp/mark"); err == nil {
			t.Errorf("sandbox b reads a's file: %s", out)
		}
		if out, err := inside(t, ns, a.Pod, "touch /usr/mark || touch /etc/mark"); err == nil {
			t.Errorf("the sandbox wrote to the machine's files: %s", out)
		}
	})
	t.Run("signals", func(t *testing.T) {
		if out, err := inside(t, ns, a.Pod, fmt.Sprintf("kill -0 %d", shared.Up.Pids["kube-apiserver"])); err == nil {
			t.Errorf("the sandbox can signal the API server: %s", out)
		}
	})
}

// probe is a shell line that prints CONNECTED when a TCP connection succeeds.
func probe(address string) string {
	host, port, _ := strings.Cut(address, ":")
	return fmt.Sprintf(`python3 -c 'import socket; socket.create_connection(("%s", %s), 2); print("CONNECTED")' 2>&1`, host, port)
}

// kubectl get and describe tell a person the story of a sandbox.
func TestWhatAPersonSees(t *testing.T) {
	ns := shared.Namespace(t)
	shared.Pool(t, ns, "shown", 2)
	e := shared.Touch(t, "shown", ns+"/shown")
	shared.Eventually(t, 10*time.Second, "the columns", func() (bool, string) {
		out, err := shared.Run(t.Context(), "kubectl", "get", "sandboxes", "shown")
		return err == nil && strings.Contains(out, "Running") && strings.Contains(out, e.Pod) && strings.Contains(out, ns), out
	})
	out, err := shared.Run(t.Context(), "kubectl", "get", "sbp", "-n", ns)
	if err != nil || !strings.Contains(out, "WANTED") || !strings.Contains(out, "IDLE") || !strings.Contains(out, "RUNNING") {
		t.Errorf("kubectl get sbp: %v\n%s", err, out)
	}
	if out, err := shared.Run(t.Context(), "end", "shown"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	shared.Eventually(t, 20*time.Second, "when it started, ended and was fenced", func() (bool, string) {
		out, err := shared.Run(t.Context(), "kubectl", "describe", "sandbox", "shown")
		return err == nil && strings.Contains(out, "Started At") && strings.Contains(out, "Ended At") && strings.Contains(out, "Fenced At") && strings.Contains(out, "Released"), out
	})
}
