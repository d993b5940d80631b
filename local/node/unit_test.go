package node

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/local/node/images"
	"github.com/sandlane/sandlane/local/node/network"
)

// The image's user counts where the pod names none, and must be numbers.
func TestUserOf(t *testing.T) {
	pod := func(uid *int64) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{RunAsUser: uid}}}
	}
	for _, c := range []struct {
		user     string
		pod      *int64
		uid, gid int
		fails    bool
	}{
		{}, {user: "1000", uid: 1000}, {user: "1000:7", uid: 1000, gid: 7}, {user: "1000:7", pod: new(int64(5)), uid: 5, gid: 7},
		{user: "node", fails: true}, {user: "1:x", fails: true}, {user: "-1", fails: true}, {user: "4294967295", fails: true},
	} {
		uid, gid, err := userOf(pod(c.pod), &corev1.Container{}, images.Entry{User: c.user})
		if uid != c.uid || gid != c.gid || (err != nil) != c.fails {
			t.Errorf("%q: %d:%d, %v", c.user, uid, gid, err)
		}
	}
}

func TestBackoff(t *testing.T) {
	var b restarts
	var got []time.Duration
	for range 9 {
		got = append(got, b.after(time.Second))
	}
	want := []time.Duration{0, 1, 2, 4, 8, 16, 32, 60, 60}
	for i := range want {
		want[i] *= time.Second
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if d := b.after(restartCalm); d != 0 {
		t.Errorf("after a long run %s", d)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := func() Options {
		return Options{StateDir: "s", Images: "i", HelperDir: "h", Isolation: IsolationFull, Subnet: netip.MustParsePrefix("198.18.0.0/22")}
	}
	for what, breakIt := range map[string]func(*Options){
		"StateDir":   func(o *Options) { o.StateDir = "" },
		"isolation":  func(o *Options) { o.Isolation = "auto" },
		"subnet":     func(o *Options) { o.Subnet = netip.Prefix{} },
		"127.0.0.0":  func(o *Options) { o.Isolation = IsolationNone },
		"kubeconfig": func(o *Options) { o.Kubeconfig = "/nowhere/kubeconfig" },
	} {
		o := good()
		breakIt(&o)
		if err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// reachRecorder is a network that remembers what it was told.
type reachRecorder struct {
	network.Loopback
	reachable bool
}

func (r *reachRecorder) SetReachable(yes bool) error { r.reachable = yes; return nil }

// TestOlderCopyDoesNotReopen: the library's queue may bring an older copy of a
// pod after the watch brought a newer one.
func TestOlderCopyDoesNotReopen(t *testing.T) {
	at := func(rv string, phase v1alpha1.PodPhase) *corev1.Pod {
		pod := echoPod("a")
		pod.ResourceVersion = rv
		pod.Labels = map[string]string{v1alpha1.LabelPool: "x", v1alpha1.LabelPhase: string(phase)}
		return pod
	}
	net := &reachRecorder{}
	p := newPod(t.Context(), nil, nil, at("9", v1alpha1.PodIdle), nil)
	p.net = net
	p.update(at("10", v1alpha1.PodRunning))
	if !net.reachable {
		t.Error("a running pod cannot be reached")
	}
	p.update(at("11", v1alpha1.PodStopping))
	p.update(at("10", v1alpha1.PodRunning))
	if net.reachable || v1alpha1.PhaseOf(p.current()) != v1alpha1.PodStopping {
		t.Error("an older copy opened a stopping pod")
	}
}

// What code in a sandbox has made does not keep a node's folders on the machine: neither folders
// that forbid to write in them, nor more in each other than this process may open.
func TestCleanupRemovesWhatASandboxMade(t *testing.T) {
	const of = "SANDLANE_TEST_CLEANUP"
	if state := os.Getenv(of); state != "" { // with few descriptors
		if err := Cleanup(state); err != nil {
			t.Error(err)
		}
		return
	}
	state := t.TempDir()
	cache := filepath.Join(nodeDir(state), "pods", "uid", "volumes", "cache")
	err := errors.Join(os.MkdirAll(cache+strings.Repeat("/d", 400), 0o755), os.WriteFile(cache+"/file", nil, 0o644), os.Chmod(cache, 0o555))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `ulimit -n 200; exec "$0" -test.run='^TestCleanupRemovesWhatASandboxMade$'`, os.Args[0])
	cmd.Env = append(os.Environ(), of+"="+state)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %.500s", err, out)
	}
	if _, err := os.Stat(filepath.Join(nodeDir(state), "pods")); err == nil {
		t.Error("the containers' folders are left")
	}
}
