package node

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

func TestAddresses(t *testing.T) {
	subnet := netip.MustParsePrefix("198.18.0.0/29") // .1 is the machine's, .2 to .6 are pods'
	for _, lifo := range []bool{false, true} {
		a := newAddresses(subnet, lifo)
		if !a.keep("old", netip.MustParseAddr("198.18.0.3")) || a.keep("x", netip.MustParseAddr("198.18.0.3")) ||
			a.keep("x", netip.MustParseAddr("198.18.0.1")) || a.keep("x", netip.MustParseAddr("198.18.0.7")) || a.keep("x", netip.Addr{}) {
			t.Error("keep takes what it must not, or refuses what it may")
		}
		take := func(uid string) string {
			addr, err := a.take(types.UID(uid))
			if err != nil {
				return err.Error()
			}
			return addr.String()[len("198.18.0."):]
		}
		if got := []string{take("p"), take("q"), take("old")}; !slices.Equal(got, []string{"2", "4", "3"}) {
			t.Errorf("lifo %v: got %v", lifo, got)
		}
		a.giveBack("p")
		want := "5"
		if lifo {
			want = "2"
		}
		if got := take("r"); got != want {
			t.Errorf("lifo %v: after a release %s, want %s", lifo, got, want)
		}
		take("s")
		take("t")
		if got := take("u"); !strings.Contains(got, "no free pod address") {
			t.Errorf("lifo %v: all taken, got %s", lifo, got)
		}
	}
}

func TestPickSubnetIsExclusive(t *testing.T) {
	for _, isolation := range []Isolation{IsolationFull, IsolationNone} {
		a, err := PickSubnet(isolation)
		if err != nil {
			t.Fatal(err)
		}
		b, err := PickSubnet(isolation)
		if err != nil {
			t.Fatal(err)
		}
		if a.Overlaps(b.Prefix) || a.Bits() != 22 {
			t.Errorf("%s: picked %s and %s", isolation, a.Prefix, b.Prefix)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		c, err := PickSubnet(isolation)
		if err != nil {
			t.Fatal(err)
		}
		if c.Overlaps(b.Prefix) {
			t.Errorf("%s: %s is picked again", isolation, c.Prefix)
		}
		_, _ = b.Close(), c.Close()
	}
}

func TestExpand(t *testing.T) {
	values := map[string]string{"A": "1", "B": "two"}
	for in, want := range map[string]string{
		"$(A)-$(B)": "1-two", "$(C)": "$(C)", "$$(A)": "$(A)", "$A": "$A", "$": "$", "$(": "$(", "a$(A": "a$(A", "": "",
	} {
		if got := expand(in, values); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestLookupImage(t *testing.T) {
	table := filepath.Join(t.TempDir(), "images.json")
	raw := `{"local/a":{"command":["a"],"digest":"sha256:1"},"local/a:v2":{"command":["a"],"digest":"sha256:2"},"local/empty":{}}`
	if err := os.WriteFile(table, []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]string{
		"local/a": "sha256:1", "local/a:latest": "sha256:1", "local/a:v2": "sha256:2", "local/a@sha256:2": "sha256:2",
		"local/a:v3": "", "local/b": "", "local/a@sha256:3": "", "local/empty": "", "a": "",
	} {
		got, err := lookupImage(table, image)
		var unknown *errImageUnknown
		if got.Digest != want || (want == "") != errors.As(err, &unknown) {
			t.Errorf("%s: got %q, %v", image, got.Digest, err)
		}
	}
	if id := imageID("host:5000/a:v2", Image{Digest: "sha256:2"}); id != "host:5000/a@sha256:2" {
		t.Errorf("image ID %q", id)
	}
}

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
		uid, gid, err := userOf(pod(c.pod), &corev1.Container{}, Image{User: c.user})
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

func TestBuildStatus(t *testing.T) {
	running := corev1.ContainerStatus{Name: "a", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	unready := running
	unready.Ready = false
	waiting := corev1.ContainerStatus{Name: "b", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}
	restarting := waiting
	restarting.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1}
	over := func(code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}
	}
	gate := []corev1.PodReadinessGate{{ConditionType: "x"}}
	for _, c := range []struct {
		what     string
		in       []corev1.ContainerStatus
		gates    []corev1.PodReadinessGate
		finished bool
		phase    corev1.PodPhase
		ready    bool
	}{
		{"all run", []corev1.ContainerStatus{running, running}, nil, false, corev1.PodRunning, true},
		{"one is not ready", []corev1.ContainerStatus{running, unready}, nil, false, corev1.PodRunning, false},
		{"one never started", []corev1.ContainerStatus{running, waiting}, nil, false, corev1.PodPending, false},
		{"one starts again", []corev1.ContainerStatus{running, restarting}, nil, false, corev1.PodRunning, false},
		{"a gate is missing", []corev1.ContainerStatus{running}, gate, false, corev1.PodRunning, false},
		{"one ended, one runs", []corev1.ContainerStatus{running, over(0)}, nil, false, corev1.PodRunning, false},
		{"all ended well", []corev1.ContainerStatus{over(0)}, nil, true, corev1.PodSucceeded, false},
		{"one failed", []corev1.ContainerStatus{over(0), over(3)}, nil, true, corev1.PodFailed, false},
		{"deleted before it started", []corev1.ContainerStatus{waiting}, nil, true, corev1.PodFailed, false},
	} {
		before := metav1.NewTime(time.Unix(100, 0))
		st := buildStatus(snapshot{
			spec: &corev1.PodSpec{ReadinessGates: c.gates}, podIP: "198.18.0.2", containers: c.in, finished: c.finished,
			now:      metav1.NewTime(time.Unix(200, 0)),
			previous: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: before}},
		})
		if st.Phase != c.phase || isReady(&corev1.Pod{Status: st}) != c.ready {
			t.Errorf("%s: phase %s, conditions %+v", c.what, st.Phase, st.Conditions)
		}
		for _, cond := range st.Conditions {
			if cond.Type == corev1.PodReady && cond.LastTransitionTime.Equal(&before) != c.ready {
				t.Errorf("%s: transition time %s", c.what, cond.LastTransitionTime)
			}
		}
	}
}

// TestCgroupVersion2 uses recorded files: the machine may have version 1.
func TestCgroupVersion2(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("cpu memory\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := openCgroupsAt(root, "abc").make("pod_main", corev1.ResourceRequirements{})
	if raw, err := os.ReadFile(filepath.Join(root, "sandlane-abc", "pod_main", "pids.max")); string(raw) != "4096" {
		t.Errorf("the limit of processes is %q, %v", raw, err)
	}
	if g.oomKilled() {
		t.Error("without events there was a kill")
	}
	events := "low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\noom_group_kill 0\n"
	dir := filepath.Join(root, "sandlane-abc", "pod_main")
	if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	if !g.oomKilled() || !slices.Equal(g.procs(), []string{filepath.Join(dir, "cgroup.procs")}) {
		t.Errorf("kill %v, procs %v", g.oomKilled(), g.procs())
	}
	state := filepath.Join(dir, "cgroup.freeze")
	var f freezer
	if err := f.freeze(g); err == nil {
		t.Error("a group without a freezer is frozen")
	}
	if err := os.WriteFile(state, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantState := func(what string, err error, want string) {
		t.Helper()
		if raw, _ := os.ReadFile(state); err != nil || string(raw) != want {
			t.Errorf("%s: %v, the kernel is told %q", what, err, raw)
		}
	}
	wantState("freeze", f.freeze(g), "1")
	for events, want := range map[string]bool{"populated 1\nfrozen 0\n": false, "populated 1\nfrozen 1\n": true} {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.events"), []byte(events), 0o600); err != nil {
			t.Fatal(err)
		}
		if g.frozen() != want {
			t.Errorf("with %q it is frozen: %v", events, !want)
		}
	}
	wantState("thaw", f.thaw(g), "0")
	wantState("end", errors.Join(f.freeze(g), f.end(g)), "0")
	if err := f.freeze(g); err == nil {
		t.Error("a container that ends is frozen")
	}
	var none *cgroups
	if none.canFreeze() {
		t.Error("no group, but a freezer")
	}
	if none.make("x", corev1.ResourceRequirements{}).oomKilled() {
		t.Error("no group, but a kill")
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
	plainNetwork
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
