package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Programs of the user find a sudo that works, by whatever way they start it, although
// no process of the pod can gain rights by itself.
func TestSudo(t *testing.T) {
	n := startNode(t, IsolationFull)
	n.create(t, echoPod("s", func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Image, c.Args, c.ReadinessProbe = "local/sandboxd", []string{"--sudo"}, nil
	}))
	n.await(t, "s", "is ready", isReady)
	if code, out := n.exec(t, "s", "sh", "-c", "until test -S /run/sandboxd/sudo.sock; do sleep 0.01; done"); code != 0 {
		t.Fatal(out)
	}
	for _, c := range []struct {
		what, script string
		uid          string
		code         int
		out          string
	}{
		{"a plain command", "sudo id -u", "1000", 0, "0\n"},
		{"a login shell", "bash -lc 'sudo -n id -un'", "1000", 0, "root\n"},
		{"sudo below sudo", "sudo sudo -u user sudo id -u", "1000", 0, "0\n"},
		{"a program", `python3 -c 'import subprocess; print(subprocess.check_output(["sudo", "-E", "A=1", "sh", "-c", "echo $A; id -u"]))'`, "1000", 0, "b'1\\n0\\n'\n"},
		{"a terminal", `python3 -c 'import pty, os; os._exit(os.waitstatus_to_exitcode(pty.spawn(["sudo", "sh", "-c", "test -t 0 && test -t 1 && id -u"])))'`, "1000", 0, "0\r\n"},
		{"what only root may write", "! touch /var/lib/x 2>/dev/null && sudo touch /var/lib/x && test -e /var/lib/x", "1000", 0, ""},
		{"no more than root's rights in a pod", "sudo grep -c 'NoNewPrivs:.1' /proc/self/status", "1000", 0, "1\n"},
		{"another user", "sudo true", "65534", 1, "sudo: user nobody may not use sudo in this sandbox: only root and user may\n"},
	} {
		code, out := n.exec(t, "s", "env", "HOME=/home/user", "setpriv", "--reuid="+c.uid, "--regid="+c.uid, "--clear-groups", "sh", "-c", c.script)
		if code != c.code || out != c.out {
			t.Errorf("%s: %q exits with %d and %q, want %d and %q", c.what, c.script, code, out, c.code, c.out)
		}
	}
}
