package node

import (
	"strings"
	"testing"
)

// userNamespaceProbe tries, in Python, the three calls that make a user namespace,
// and starts a thread and a process, and says what came of each.
const userNamespaceProbe = `
import ctypes, errno, os, platform, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == "aarch64"
NEWUSER, SIGCHLD = 0x10000000, 17
def said(what, r):
    if what != "unshare" and r == 0:
        os._exit(0)
    print(what, errno.errorcode[ctypes.get_errno()] if r < 0 else "done")
args = (ctypes.c_uint64 * 11)(NEWUSER, 0, 0, 0, SIGCHLD)
said("clone3", libc.syscall(435, args, 88))
said("clone", libc.syscall(220 if arm else 56, NEWUSER | SIGCHLD, 0, 0, 0, 0))
said("unshare", libc.unshare(NEWUSER))
t = threading.Thread(target=lambda: print("thread done"))
t.start()
t.join()
print("process", subprocess.run(["echo", "done"], capture_output=True, text=True).stdout.strip())
`

// No process of a container makes a user namespace, neither its first one nor one
// of an exec, and threads and processes start as ever.
func TestNoUserNamespaces(t *testing.T) {
	n := startNode(t, IsolationFull)
	pod := shellPod("u", "python3 -c '"+strings.ReplaceAll(userNamespaceProbe, "'", `'\''`)+"' > /tmp/first 2>&1; touch /tmp/over; exec sleep 1000")
	pod.Spec.Containers[0].Image = "local/imaged" // as the user 1000
	n.create(t, pod)
	n.await(t, "u", "is ready", isReady)
	const want = "clone3 ENOSYS\nclone EPERM\nunshare EPERM\nthread done\nprocess done\n"
	if _, got := n.exec(t, "u", "python3", "-c", userNamespaceProbe); got != want {
		t.Errorf("a process of an exec: %q, want %q", got, want)
	}
	if _, got := n.exec(t, "u", "sh", "-c", "until test -e /tmp/over; do sleep 0.01; done; cat /tmp/first"); got != want {
		t.Errorf("the container's own: %q, want %q", got, want)
	}
}
