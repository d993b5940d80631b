package node

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// TestStatusWritesKeepLabels claims pods while their status changes all the
// time: no label or annotation is ever put back.
func TestStatusWritesKeepLabels(t *testing.T) {
	n := startNode(t, IsolationNone)
	const pods, claims = 10, 20
	for i := range pods {
		// Ready flips with every probe of a container that fails every other time.
		p := shellPod("p"+strconv.Itoa(i), "exit 1")
		p.Labels = map[string]string{v1alpha1.LabelPool: "x", v1alpha1.LabelPhase: "idle"}
		p.Annotations = map[string]string{"a": "b"}
		n.create(t, p)
	}
	var all sync.WaitGroup
	failed := make(chan error, pods*claims)
	for i := range pods {
		all.Go(func() {
			name := "p" + strconv.Itoa(i)
			for j := range claims {
				value := fmt.Sprintf("claim-%d", j)
				patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q},"annotations":{%q:%q}}}`, v1alpha1.LabelSandboxID, value, v1alpha1.AnnotationClaim, value)
				if _, err := n.client.CoreV1().Pods(n.ns).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
					failed <- err
					return
				}
				rec, err := n.provider().find(n.ns, name)
				if err == nil {
					rec.mu.Lock()
					rec.message = value // a status write for each claim
					rec.mu.Unlock()
					rec.changed()
				}
				pod, err := n.client.CoreV1().Pods(n.ns).Get(t.Context(), name, metav1.GetOptions{})
				if err != nil || pod.Labels[v1alpha1.LabelSandboxID] != value || pod.Annotations[v1alpha1.AnnotationClaim] != value {
					failed <- fmt.Errorf("%s: label %q, want %q: %w", name, pod.Labels[v1alpha1.LabelSandboxID], value, err)
				}
			}
		})
	}
	all.Wait()
	for i := range pods {
		n.await(t, "p"+strconv.Itoa(i), "shows the last status and the last claim", func(p *corev1.Pod) bool {
			return p.Status.Message == "claim-19" && p.Labels[v1alpha1.LabelSandboxID] == "claim-19"
		})
	}
	close(failed)
	for err := range failed {
		t.Error(err)
	}
}

func TestImageChange(t *testing.T) {
	n := startNode(t, IsolationFull)
	n.create(t, echoPod("a"))
	before := n.await(t, "a", "is ready", isReady)
	first, err := ask(t.Context(), before.Status.PodIP)
	if err != nil {
		t.Fatal(err)
	}
	patch := `[{"op":"replace","path":"/spec/containers/0/image","value":"local/echo:v2"}]`
	begun := time.Now()
	if _, err := n.client.CoreV1().Pods(n.ns).Patch(t.Context(), "a", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	after := n.await(t, "a", "runs the new image", func(p *corev1.Pod) bool {
		return isReady(p) && p.Status.ContainerStatuses[0].ImageID == "local/echo@sha256:2222"
	})
	t.Logf("image changed after %s", time.Since(begun).Round(time.Millisecond))
	second, err := ask(t.Context(), after.Status.PodIP)
	if err != nil {
		t.Fatal(err)
	}
	old, now := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]
	if after.Status.PodIP != before.Status.PodIP || first.Process == second.Process ||
		old.ContainerID == now.ContainerID || now.RestartCount != 1 || now.Image != "local/echo:v2" {
		t.Errorf("before %s %+v %+v\nafter %s %+v %+v", before.Status.PodIP, old, first, after.Status.PodIP, now, second)
	}
}

func TestRestartsAndExitCodes(t *testing.T) {
	n := startNode(t, IsolationFull)
	policy := func(p corev1.RestartPolicy) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Spec.RestartPolicy = p }
	}
	n.create(t,
		shellPod("always", "exit 3"),
		shellPod("done", "exit 0", policy(corev1.RestartPolicyOnFailure)),
		shellPod("failed", "exit 7", policy(corev1.RestartPolicyNever)),
		shellPod("unknown", "", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "registry/none:1" }),
		shellPod("noprogram", "", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "local/missing" }),
		shellPod("readonly", "true", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/usr/local/new"}}
		}),
		shellPod("hungry", "python3 -c 'x=bytearray(300<<20)'", policy(corev1.RestartPolicyNever), func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("50Mi")}
		}),
	)
	n.await(t, "always", "is restarted with back-off", func(p *corev1.Pod) bool {
		cs := p.Status.ContainerStatuses
		return len(cs) == 1 && cs[0].RestartCount >= 1 && cs[0].State.Waiting != nil && cs[0].State.Waiting.Reason == "CrashLoopBackOff" &&
			cs[0].LastTerminationState.Terminated.ExitCode == 3
	})
	n.await(t, "done", "has succeeded", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	failed := n.await(t, "failed", "has failed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if code := failed.Status.ContainerStatuses[0].State.Terminated.ExitCode; code != 7 {
		t.Errorf("exit code %d", code)
	}
	waiting := func(reasons ...string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			cs := p.Status.ContainerStatuses
			return len(cs) == 1 && cs[0].State.Waiting != nil && strings.Contains(strings.Join(reasons, " "), cs[0].State.Waiting.Reason) && cs[0].State.Waiting.Message != ""
		}
	}
	n.await(t, "unknown", "waits for its image", waiting("ErrImagePull", "ImagePullBackOff"))
	n.await(t, "noprogram", "says that it does not start", waiting("RunContainerError"))
	n.await(t, "readonly", "says what to do about a mount in a folder of the machine's", func(p *corev1.Pod) bool {
		return waiting("RunContainerError", "CrashLoopBackOff")(p) && strings.Contains(p.Status.ContainerStatuses[0].State.Waiting.Message, "without spec.template.runtimes")
	})
	hungry := n.await(t, "hungry", "has failed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if over := hungry.Status.ContainerStatuses[0].State.Terminated; over.Reason != "OOMKilled" || over.ExitCode != 137 {
		t.Errorf("out of memory: %+v", over)
	}
	grace := int64(0)
	if err := n.client.CoreV1().Pods(n.ns).Delete(t.Context(), "failed", metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		t.Fatal(err)
	}
	n.awaitGone(t, "failed")
}

func TestProbesAndHooks(t *testing.T) {
	n := startNode(t, IsolationFull)
	command := func(script string) corev1.ProbeHandler {
		return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", script}}}
	}
	n.create(t, shellPod("a", "sleep 1000", func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: command("test -e /tmp/ready")}
		c.LivenessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: command("test ! -e /tmp/sick")}
		c.StartupProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: command("test -e /tmp/hook")}
		c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"touch", "/tmp/hook"}}}}
	}))
	n.await(t, "a", "has started and is not ready", func(p *corev1.Pod) bool {
		cs := p.Status.ContainerStatuses
		return len(cs) == 1 && cs[0].Started != nil && *cs[0].Started && !cs[0].Ready
	})
	if code, out := n.exec(t, "a", "touch", "/tmp/ready"); code != 0 {
		t.Fatal(out)
	}
	n.await(t, "a", "is ready", isReady)
	if code, out := n.exec(t, "a", "rm", "/tmp/ready"); code != 0 {
		t.Fatal(out)
	}
	n.await(t, "a", "is not ready any more", func(p *corev1.Pod) bool { return !isReady(p) })
	machine, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	bootID := func() string {
		code, out := n.exec(t, "a", "cat", "/proc/sys/kernel/random/boot_id")
		if code != 0 || len(out) != len(machine) || out == string(machine) {
			t.Errorf("the boot ID is %q (exit code %d), the machine's %q", out, code, machine)
		}
		return out
	}
	first := bootID()
	if again := bootID(); again != first {
		t.Errorf("the boot ID of one run is %q and %q", first, again)
	}
	if code, out := n.exec(t, "a", "touch", "/tmp/sick"); code != 0 {
		t.Fatal(out)
	}
	n.await(t, "a", "is restarted", func(p *corev1.Pod) bool {
		cs := p.Status.ContainerStatuses[0]
		return cs.RestartCount == 1 && cs.State.Running != nil && cs.LastTerminationState.Terminated.ExitCode == 137
	})
	if second := bootID(); second == first {
		t.Errorf("the next run has the boot ID of the first, %q", first)
	}
}

// TestFinalizerKeepsTheObjectOnly: a deleted pod with a finalizer loses its
// processes at once and shows how it ended; it goes when the finalizer does.
func TestFinalizerKeepsTheObjectOnly(t *testing.T) {
	n := startNode(t, IsolationFull)
	n.create(t, echoPod("a", func(p *corev1.Pod) { p.Finalizers = []string{v1alpha1.FinalizerPod} }))
	pod := n.await(t, "a", "is ready", isReady)
	if err := n.client.CoreV1().Pods(n.ns).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n.await(t, "a", "is over", func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].State.Terminated != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
	})
	if _, err := ask(t.Context(), pod.Status.PodIP); err == nil {
		t.Error("a pod that is over answers")
	}
	patch := `{"metadata":{"finalizers":null}}`
	if _, err := n.client.CoreV1().Pods(n.ns).Patch(t.Context(), "a", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	n.awaitGone(t, "a")
	kubetest.Eventually(t, "the record is forgotten", func() error {
		if _, err := n.provider().find(n.ns, "a"); err == nil {
			return errors.New("it is there")
		}
		return nil
	})
}

// TestAddressReuse: with LIFO the next pod gets the address at once, and
// nothing answers for the old pod.
func TestAddressReuse(t *testing.T) {
	n := startNode(t, IsolationFull, func(o *Options) { o.ReuseLIFO = true })
	last := ""
	for i := range 4 {
		name := "p" + strconv.Itoa(i)
		n.create(t, echoPod(name))
		pod := n.await(t, name, "is ready", isReady)
		if last != "" && pod.Status.PodIP != last {
			t.Errorf("address %s, want %s again", pod.Status.PodIP, last)
		}
		last = pod.Status.PodIP
		begun := time.Now()
		if id, err := ask(t.Context(), last); err != nil || id.Pod != name {
			t.Errorf("%s answers for %s: %v", id.Pod, name, err)
		}
		if d := time.Since(begun); d > time.Second {
			t.Errorf("the address took %s to answer for its new pod", d)
		}
		zero := int64(0)
		if err := n.client.CoreV1().Pods(n.ns).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
			t.Fatal(err)
		}
		n.awaitGone(t, name)
		kubetest.Eventually(t, "its processes are dead", func() error {
			if n.provider().recorded(pod.UID) {
				return errors.New("its record is there")
			}
			return nil
		})
	}
}

func TestPreStopRunsAndIsBounded(t *testing.T) {
	n := startNode(t, IsolationFull)
	grace := int64(2)
	n.create(t, shellPod("a", "sleep 1000", func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = &grace
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sleep", "100"}}}}
	}))
	n.await(t, "a", "is ready", isReady)
	begun := time.Now()
	if err := n.client.CoreV1().Pods(n.ns).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n.awaitGone(t, "a")
	if d := time.Since(begun); d < 1500*time.Millisecond || d > 6*time.Second {
		t.Errorf("gone after %s, want about the 2 s of grace", d)
	}
}
