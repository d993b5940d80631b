package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/test/stack"
)

// imageTable is held while the node's table of images is written.
var imageTable sync.Mutex

// addImage gives the local node another name for the echo server.
func addImage(t *testing.T, name, digest string) {
	t.Helper()
	imageTable.Lock()
	defer imageTable.Unlock()
	file := filepath.Join(shared.State, "cluster", "images.json")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var table map[string]map[string]any
	if err := json.Unmarshal(raw, &table); err != nil {
		t.Fatal(err)
	}
	table[name] = map[string]any{"command": table["local/echo"]["command"], "digest": digest}
	if raw, err = json.Marshal(table); err != nil {
		t.Fatal(err)
	}
	// Beside and renamed: the node may read at any time.
	if err := os.WriteFile(file+".new", raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// makeSandbox makes a sandbox without a pod, for a first request to start.
func makeSandbox(t *testing.T, id, ns, pool string, change func(*v1alpha1.SandboxSpec)) {
	t.Helper()
	s := &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{Name: id, Finalizers: []string{v1alpha1.FinalizerSandbox}},
		Spec:       v1alpha1.SandboxSpec{Namespace: ns, Pool: pool},
	}
	change(&s.Spec)
	if err := shared.Client.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func endAndAwait(t *testing.T, id string) {
	t.Helper()
	if err := writes.EndSandbox(t.Context(), shared.Client, id, v1alpha1.EndReleased, ""); err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, 30*time.Second, "the end of "+id, func() (bool, string) {
		sb, _ := shared.Sandbox(t, id)
		return sb.Status.Phase == v1alpha1.SandboxEnded, string(sb.Status.Phase)
	})
}

// A sandbox of a pool with post-start hooks is reached only once they are done,
// and not at all if they fail.
func TestPostStartHooks(t *testing.T) {
	t.Parallel()
	ns := shared.Namespace(t)
	hooks := func(hooks ...v1alpha1.PostStartHook) stack.PoolOption {
		return func(p *v1alpha1.SandboxPool) { p.Spec.Template.PostStartHooks = hooks }
	}
	exec := func(name, line string) v1alpha1.PostStartHook {
		return v1alpha1.PostStartHook{Name: name, Exec: &v1alpha1.ExecHook{Command: []string{"/bin/sh", "-c", line}}}
	}
	shared.Pool(t, ns, "good", 1, hooks(
		exec("write", "sleep 1; echo done > /tmp/hooked"),
		v1alpha1.PostStartHook{Name: "post", HTTPPost: &v1alpha1.HTTPPostHook{Port: 8000, Path: "/"}}))
	e := shared.Touch(t, "hooked", ns+"/good")
	if out, err := inside(t, ns, e.Pod, "cat /tmp/hooked"); err != nil || !strings.Contains(out, "done") {
		t.Errorf("the sandbox answered before its hook was done: %v, %s", err, out)
	}
	sb, _ := shared.Sandbox(t, "hooked")
	if sb.Spec.End != nil {
		t.Errorf("%+v", sb.Spec.End)
	}
	shared.Pool(t, ns, "bad", 1, hooks(exec("refuse", "exit 7")))
	if a := shared.Do(t, nil, stack.Request{ID: "unhooked", Pool: ns + "/bad"}); a.Status == 200 {
		t.Errorf("a sandbox whose hook failed answered: %v", a)
	}
	shared.Eventually(t, 20*time.Second, "the record of the failed hook", func() (bool, string) {
		sb, _ := shared.Sandbox(t, "unhooked")
		stop := sb.Status.Stop
		return stop != nil && stop.FailureReason == "PostStartHookFailed" && strings.Contains(stop.FailureMessage, "refuse"), fmt.Sprintf("%+v", stop)
	})
}

// A sandbox that names no image runs its template's, also in a pool whose pods run
// another one until they are claimed.
func TestIdleImage(t *testing.T) {
	t.Parallel()
	ns := shared.Namespace(t)
	addImage(t, "local/waits", "sha256:"+strings.Repeat("cd", 32))
	shared.Pool(t, ns, "pool", 1, func(p *v1alpha1.SandboxPool) {
		p.Spec.PodCreationImagePolicy, p.Spec.Template.IdleImage = v1alpha1.ImagePolicyIdle, "local/waits"
	})
	idle := shared.PodsOf(t, ns)[0]
	e := shared.Touch(t, "not-idle", ns+"/pool")
	if e.PodUID != string(idle.UID) {
		t.Fatalf("pod %s answers, want %s", e.PodUID, idle.UID)
	}
	for _, pod := range shared.PodsOf(t, ns) {
		want := "local/waits"
		if pod.UID == idle.UID {
			want = "local/echo"
		}
		if got := pod.Spec.Containers[0].Image; got != want {
			t.Errorf("the %s pod %s runs %s, want %s", v1alpha1.PhaseOf(&pod), pod.Name, got, want)
		}
	}
	if was := idle.Spec.Containers[0].Image; was != "local/waits" {
		t.Errorf("before it was claimed the pod ran %s", was)
	}
}

// A claim that changes the image is one write; the sandbox answers once the new
// image runs. A pool that may have no other pod uses it again, with nothing of the
// last sandbox in it. An image that nobody knows is told.
func TestImageChangeAndRecycling(t *testing.T) {
	t.Parallel()
	ns := shared.Namespace(t)
	addImage(t, "local/next", "sha256:"+strings.Repeat("ab", 32))
	addImage(t, "local/twin", "sha256:"+strings.Repeat("ab", 32))
	shared.Pool(t, ns, "pool", 1, stack.WithMaxPods(1), func(p *v1alpha1.SandboxPool) {
		p.Spec.RecyclePolicy = v1alpha1.RecycleInPlace
		spec := &p.Spec.Template.Template.Spec
		spec.Volumes = []corev1.Volume{{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "shm", MountPath: "/dev/shm", ReadOnly: true}}
	})
	uid := shared.PodsOf(t, ns)[0].UID
	processes := map[string]bool{}
	for i, image := range []string{"local/next", "local/twin", "local/next:latest"} {
		id := fmt.Sprint("changed-", i)
		makeSandbox(t, id, ns, "pool", func(s *v1alpha1.SandboxSpec) { s.Images = map[string]string{"main": image} })
		a := shared.Do(t, nil, stack.Request{ID: id})
		if a.Echo == nil || a.Echo.PodUID != string(uid) || processes[a.Echo.Process] {
			t.Fatalf("%s: %v; want pod %s with a new process", id, a, uid)
		}
		processes[a.Echo.Process] = true
		pod := shared.PodsOf(t, ns)[0]
		if got := pod.Spec.Containers[0].Image; got != image || pod.Labels[v1alpha1.LabelSandboxID] != id {
			t.Errorf("the pod runs %s for %s, want %s for %s", got, pod.Labels[v1alpha1.LabelSandboxID], image, id)
		}
		if out, err := inside(t, ns, pod.Name, "ls /tmp /home; echo of "+id+" > /tmp/left"); err != nil || strings.Contains(out, "left") {
			t.Errorf("%s finds what another left: %v, %s", id, err, out)
		}
		endAndAwait(t, id)
		shared.WaitIdle(t, ns, "pool", 1)
		pod = shared.PodsOf(t, ns)[0]
		for _, key := range []string{v1alpha1.AnnotationClaim, v1alpha1.AnnotationClaimedAt, v1alpha1.AnnotationStartedAt, v1alpha1.AnnotationStop, v1alpha1.AnnotationRecycling} {
			if _, ok := pod.Annotations[key]; ok {
				t.Errorf("%s is left on the recycled pod", key)
			}
		}
		if pod.UID != uid || pod.Labels[v1alpha1.LabelSandboxID] != "" || pod.Spec.Containers[0].Image != "local/echo" {
			t.Fatalf("not recycled: pod %s, labels %v, image %s", pod.Name, pod.Labels, pod.Spec.Containers[0].Image)
		}
		if a := shared.Do(t, nil, stack.Request{ID: id}); a.Status != 502 {
			t.Errorf("the ended sandbox %s: %v", id, a)
		}
	}
	makeSandbox(t, "no-image", ns, "pool", func(s *v1alpha1.SandboxSpec) {
		s.Images = map[string]string{"main": "local/nowhere"}
		s.Timeouts.Startup = &metav1.Duration{Duration: 3 * time.Second}
	})
	if a := shared.Do(t, nil, stack.Request{ID: "no-image"}); a.Status == 200 {
		t.Errorf("a sandbox without an image answered: %v", a)
	}
	shared.Eventually(t, 20*time.Second, "the record", func() (bool, string) {
		sb, _ := shared.Sandbox(t, "no-image")
		stop := sb.Status.Stop
		return stop != nil && stop.FailureReason == "StartupTimeout" && strings.Contains(stop.FailureMessage, "local/nowhere"), fmt.Sprintf("%+v", stop)
	})
	shared.WaitIdle(t, ns, "pool", 1)
}
