package node

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shell makes a container of the pod run a script.
func shell(name, script string, mounts ...corev1.VolumeMount) corev1.Container {
	return corev1.Container{Name: name, Image: "local/shell", Args: []string{script}, VolumeMounts: mounts}
}

func emptyDir(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

// ready makes a container ready once a script in it succeeds.
func ready(c corev1.Container, script string) corev1.Container {
	c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", script}}}}
	return c
}

// Init containers run one after the other, each until it ends well, before the containers of
// the pod; and again after the node was restarted.
func TestInitContainers(t *testing.T) {
	n := startNode(t, IsolationFull)
	work := corev1.VolumeMount{Name: "work", MountPath: "/work"}
	n.create(t, echoPod("a", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{emptyDir("work")}
		p.Spec.InitContainers = []corev1.Container{
			shell("first", "sleep 0.2; echo -n 1 >> /work/order", work),
			shell("second", "echo -n 2 >> /work/order; test -e /work/again || { touch /work/again; exit 3; }", work),
		}
		p.Spec.Containers = []corev1.Container{ready(shell("main", "echo -n m >> /work/order; exec sleep 1000", work), "grep -q m /work/order")}
	}))
	pod := n.await(t, "a", "ready", isReady)
	if s := pod.Status.InitContainerStatuses; len(s) != 2 || s[0].RestartCount != 0 || s[1].RestartCount != 1 || !s[1].Ready {
		t.Errorf("its init containers: %+v", s)
	}
	order := func() string {
		code, out := n.exec(t, "a", "cat", "/work/order")
		if code != 0 {
			t.Fatal(code, out)
		}
		return out
	}
	if got := order(); got != "122m" {
		t.Errorf("they ran in the order %q", got)
	}
	n.halt(t)
	n.start(t)
	pod = n.await(t, "a", "ready again", func(p *corev1.Pod) bool { return isReady(p) && p.Status.ContainerStatuses[0].RestartCount == 1 })
	if got := order(); got != "122m" || pod.Status.InitContainerStatuses[0].RestartCount != 1 {
		t.Errorf("after the node's restart, with empty volumes, they ran in the order %q: %+v", got, pod.Status.InitContainerStatuses)
	}
}

// An init container that fails where nothing is repeated ends its pod; what follows it never runs.
func TestInitContainerFails(t *testing.T) {
	n := startNode(t, IsolationFull)
	n.create(t, echoPod("a", func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.InitContainers = []corev1.Container{shell("first", "exit 4"), shell("second", "exit 0")}
	}))
	pod := n.await(t, "a", "failed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	first, second, main := pod.Status.InitContainerStatuses[0], pod.Status.InitContainerStatuses[1], pod.Status.ContainerStatuses[0]
	if first.State.Terminated == nil || first.State.Terminated.ExitCode != 4 || second.ContainerID != "" || main.ContainerID != "" {
		t.Errorf("its containers: %+v", pod.Status)
	}
	n.create(t, echoPod("b", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{shell("first", "exec sleep 1000")}
	}))
	pod = n.await(t, "b", "in its first init container", func(p *corev1.Pod) bool {
		s := p.Status.InitContainerStatuses
		return len(s) == 1 && s[0].State.Running != nil
	})
	if w := pod.Status.ContainerStatuses[0].State.Waiting; pod.Status.Phase != corev1.PodPending || w == nil || w.Reason != "PodInitializing" {
		t.Errorf("meanwhile: %s, %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
	}
}

// Files of config maps, Secrets and the pod itself are in its volumes, and a part of a volume
// can be mounted alone.
func TestVolumesOfTheCluster(t *testing.T) {
	n := startNode(t, IsolationFull)
	if _, err := n.client.CoreV1().ConfigMaps(n.ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"a.conf": "a=1", "b.conf": "b=1"}, BinaryData: map[string][]byte{"bin": {0, 1}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.client.CoreV1().Secrets(n.ns).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "keys"}, StringData: map[string]string{"key": "hidden"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mode := int32(0o400)
	labels := corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}
	key := corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Items: []corev1.KeyToPath{{Key: "key", Path: "deep/key", Mode: &mode}}}
	n.create(t, echoPod("a", func(p *corev1.Pod) {
		p.Labels = map[string]string{"team": "red"}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
			{Name: "all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: &key}, {DownwardAPI: &labels}}}}},
		}
		p.Spec.Containers = []corev1.Container{ready(shell("main", "exec sleep 1000",
			corev1.VolumeMount{Name: "settings", MountPath: "/settings"}, corev1.VolumeMount{Name: "all", MountPath: "/all"},
			corev1.VolumeMount{Name: "settings", MountPath: "/srv/one.conf", SubPath: "a.conf"},
		), `set -e; test "$(cat /settings/a.conf /settings/b.conf /srv/one.conf /all/deep/key)" = a=1b=1a=1hidden; test "$(cat /all/labels)" = 'team="red"'
test "$(stat -c %a /all/deep/key)" = 400; test "$(wc -c < /settings/bin)" = 2; ! touch /settings/c 2>&-`)}
	}))
	n.await(t, "a", "ready", isReady)
	n.create(t, echoPod("b", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "none"}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "s", MountPath: "/s"}}
	}))
	n.await(t, "b", "told what is missing", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "CreateContainerConfigError" && strings.Contains(s[0].State.Waiting.Message, `secret "none"`)
	})
}

// A part of a volume that a container made a link is not followed, into the machine or elsewhere.
func TestLinkInAVolume(t *testing.T) {
	n := startNode(t, IsolationFull)
	for name, link := range map[string]string{"up": "../../../..", "root": "/etc", "nested": "up/etc"} {
		n.create(t, echoPod(name, func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{emptyDir("v")}
			p.Spec.InitContainers = []corev1.Container{shell("hostile", "ln -s ../../../.. /v/up; ln -sfn "+link+" /v/part; mkdir -p /v/good",
				corev1.VolumeMount{Name: "v", MountPath: "/v"})}
			p.Spec.Containers = []corev1.Container{shell("main", "exec sleep 1000", corev1.VolumeMount{Name: "v", MountPath: "/part", SubPath: "part"})}
		}))
		n.await(t, name, "refused", func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses
			return len(s) == 1 && s[0].State.Waiting != nil && strings.Contains(s[0].State.Waiting.Message, "in its volume")
		})
	}
}

// A container with a read-only root writes to its volumes alone, and has its working directory.
func TestReadOnlyRoot(t *testing.T) {
	n := startNode(t, IsolationFull)
	program, err := os.ReadFile(filepath.Join(helpers(t), "echo"))
	if err != nil {
		t.Fatal(err)
	}
	image := pushImage(t, []tar.Header{{Name: "app/echo", Typeflag: tar.TypeReg, Mode: 0o755}}, [][]byte{program}, v1.Config{Entrypoint: []string{"/app/echo"}, WorkingDir: "/made"})
	yes := true
	n.create(t, echoPod("a", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{emptyDir("work")}
		c := shell("first", "cd /tmp && ! touch x /home/user/x /x /dev/x 2>/dev/null && pwd > /work/file", corev1.VolumeMount{Name: "work", MountPath: "/work"})
		c.SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: &yes}
		p.Spec.InitContainers = []corev1.Container{c}
		p.Spec.Containers[0].Image, p.Spec.Containers[0].SecurityContext = image, c.SecurityContext
	}))
	pod := n.await(t, "a", "ready", isReady)
	if end := pod.Status.InitContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 0 {
		t.Errorf("its init container: %+v", pod.Status.InitContainerStatuses)
	}
	rec := n.record(t, "a")
	rec.mu.Lock()
	root := fmt.Sprintf("/proc/%d/root", rec.containers[0].proc.PID())
	rec.mu.Unlock()
	for _, dir := range []string{"", "made", "etc", "app"} {
		if err := os.WriteFile(filepath.Join(root, dir, "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("write to /%s: %v", dir, err)
		}
	}
	if hosts, err := os.ReadFile(filepath.Join(root, "etc/hosts")); err != nil || !strings.Contains(string(hosts), pod.Status.PodIP+"\ta\n") {
		t.Errorf("/etc/hosts: %q, %v", hosts, err)
	}
}

// What each pod of an image has of its own are few files: those that its mounts need, which all
// images may lack, are there once.
func TestMountsMakeNoFiles(t *testing.T) {
	n := startNode(t, IsolationFull)
	program, err := os.ReadFile(filepath.Join(helpers(t), "echo"))
	if err != nil {
		t.Fatal(err)
	}
	image := pushImage(t, []tar.Header{{Name: "app/echo", Typeflag: tar.TypeReg, Mode: 0o755}}, [][]byte{program}, v1.Config{Entrypoint: []string{"/app/echo"}})
	n.create(t, echoPod("a", func(p *corev1.Pod) { p.Spec.Containers[0].Image = image }))
	pod := n.await(t, "a", "ready", isReady)
	var made []string
	dir := filepath.Join(n.record(t, "a").rt.dir, "pods", string(pod.UID), "main-0", "upper")
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if path != dir {
			made = append(made, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(made) > 0 {
		t.Errorf("the pod's own files are %q, want none", made)
	}
}
