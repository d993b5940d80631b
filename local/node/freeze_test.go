package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// claimed makes a pod one of a pool that a sandbox has.
func claimed(p *corev1.Pod) {
	p.Labels = map[string]string{v1alpha1.LabelPool: "echo", v1alpha1.LabelPhase: string(v1alpha1.PodRunning)}
	p.Annotations = map[string]string{v1alpha1.AnnotationClaim: "c1"}
}

// annotate sets an annotation of a pod, or removes it.
func (n *testNode) annotate(t *testing.T, pod, key string, value any) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.client.CoreV1().Pods(n.ns).Patch(t.Context(), pod, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func frozenIs(status corev1.ConditionStatus) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == v1alpha1.PodConditionFrozen {
				return c.Status == status
			}
		}
		return false
	}
}

func (n *testNode) freeze(t *testing.T, pod string) *corev1.Pod {
	t.Helper()
	n.annotate(t, pod, v1alpha1.AnnotationFreeze, "c1")
	return n.await(t, pod, "is frozen", frozenIs(corev1.ConditionTrue))
}

// What runs in a pod stops as long as its annotation says so: clients learn that no answer
// comes, probes judge nothing, nothing enters it, and the same process goes on afterwards.
func TestFreeze(t *testing.T) {
	n := startNode(t, IsolationFull)
	strict := func(p *corev1.Pod) { p.Spec.Containers[0].ReadinessProbe.FailureThreshold = 1 }
	n.create(t, echoPod("a", claimed, strict), echoPod("b", claimed))
	a, b := n.await(t, "a", "is ready", isReady), n.await(t, "b", "is ready", isReady)
	if !frozenIs(corev1.ConditionFalse)(a) {
		t.Errorf("the conditions are %+v", a.Status.Conditions)
	}
	was, err := ask(t.Context(), a.Status.PodIP)
	if err != nil {
		t.Fatal(err)
	}
	toA, toB := waitFor(t, a.Status.PodIP), waitFor(t, b.Status.PodIP)
	n.freeze(t, "a")
	select {
	case err := <-toA:
		if err == nil {
			t.Error("a frozen pod has answered")
		}
	case <-time.After(severLimit):
		t.Error("nobody told the request to the frozen pod")
	}
	if _, err := ask(t.Context(), a.Status.PodIP); err == nil { // for two seconds, in which a probe would fail
		t.Error("a frozen pod has answered")
	}
	if code, said := n.exec(t, "a", "/image/echo"); code != -1 || !strings.Contains(said, "frozen") {
		t.Errorf("a command in a frozen pod: %d, %s", code, said)
	}
	if p := n.get(t, "a"); !isReady(p) {
		t.Errorf("the conditions are %+v", p.Status.Conditions)
	}
	n.annotate(t, "a", v1alpha1.AnnotationFreeze, nil)
	n.await(t, "a", "runs", frozenIs(corev1.ConditionFalse))
	if is, err := ask(t.Context(), a.Status.PodIP); err != nil || is != was {
		t.Errorf("after the thaw: %+v, %v; before %+v", is, err, was)
	}
	select {
	case err := <-toB:
		t.Errorf("the request to the other pod ended: %v", err)
	default:
	}
}

// What is to end does, frozen or not.
func TestEndOfFrozenPods(t *testing.T) {
	n := startNode(t, IsolationFull)
	stubborn := func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(0)) }
	hook := func(p *corev1.Pod) {
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "exit 0"}}}}
		p.Spec.TerminationGracePeriodSeconds = new(int64(600))
	}
	quit := func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(600)) }
	n.create(t, echoPod("killed", claimed, stubborn), shellPod("hooked", "trap 'exit 0' TERM; while :; do sleep 0.1; done", claimed, hook),
		shellPod("asked", "trap 'exit 0' TERM; while :; do sleep 0.1; done", claimed, quit), echoPod("stopped", claimed), echoPod("left", claimed))
	for _, name := range []string{"killed", "hooked", "asked", "stopped", "left"} {
		n.await(t, name, "is ready", isReady)
		n.freeze(t, name)
	}
	for _, name := range []string{"killed", "hooked", "asked"} {
		if err := n.client.CoreV1().Pods(n.ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"killed", "hooked", "asked"} {
		n.awaitGone(t, name)
	}
	patch := `{"metadata":{"labels":{"` + v1alpha1.LabelPhase + `":"` + string(v1alpha1.PodStopping) + `"}}}`
	if _, err := n.client.CoreV1().Pods(n.ns).Patch(t.Context(), "stopped", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	n.await(t, "stopped", "runs", frozenIs(corev1.ConditionFalse))
	n.halt(t)
	if left := leftovers(n.opts.StateDir); len(left) > 0 {
		t.Errorf("the node has left %v", left)
	}
}

// The kill of a node reaches frozen processes only when they are thawed: clean does that,
// with which the next node begins, before any of its own answers at their addresses.
func TestKilledNodeWithAFrozenPod(t *testing.T) {
	n := startNode(t, IsolationFull)
	n.halt(t) // this test's node is a process of its own
	cmd := n.startChild(t, IsolationFull)
	n.create(t, echoPod("a", claimed))
	was := n.await(t, "a", "is ready", isReady)
	id, err := ask(t.Context(), was.Status.PodIP)
	if err != nil {
		t.Fatal(err)
	}
	n.freeze(t, "a")
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := clean(n.opts.StateDir); err != nil {
		t.Error(err)
	}
	if left := leftovers(n.opts.StateDir); len(left) > 0 {
		t.Errorf("cleaning has left %v", left)
	}
	n.annotate(t, "a", v1alpha1.AnnotationFreeze, nil)
	n.start(t)
	again := n.await(t, "a", "runs again", func(p *corev1.Pod) bool {
		return isReady(p) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	if is, err := ask(t.Context(), again.Status.PodIP); err != nil || is.Process == id.Process {
		t.Errorf("%+v answers, %v; before the kill %+v", is, err, id)
	}
	n.freeze(t, "a")
	n.halt(t)
	kubetest.Eventually(t, 5*time.Second, "nothing is left", func() error {
		for _, l := range leftovers(n.opts.StateDir) {
			if filepath.Base(filepath.Dir(l)) != "pods" {
				return errors.New(l)
			}
		}
		return nil
	})
}

// Nothing that a killed node has left frozen runs again: it is killed before it is thawed.
func TestKilledBeforeThawed(t *testing.T) {
	needRoot(t)
	hash := fmt.Sprintf("test%d", os.Getpid())
	t.Cleanup(func() { removeCgroups(hash) })
	g := openCgroups(hash).make("writers", corev1.ResourceRequirements{})
	out := filepath.Join(t.TempDir(), "out")
	var writers []*exec.Cmd
	for range 8 {
		cmd := exec.Command("/bin/sh", "-c", "read go; i=0; while [ $i -lt 10000000 ]; do echo x; i=$((i+1)); done >> "+out)
		begin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		writers = append(writers, cmd)
		for _, file := range g.procs() {
			if err := os.WriteFile(file, []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := begin.Write([]byte("go\n")); err != nil {
			t.Fatal(err)
		}
	}
	written := func() int64 {
		info, err := os.Stat(out)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	kubetest.Eventually(t, 20*time.Second, "they write", func() error {
		if written() == 0 {
			return errors.New("nothing")
		}
		return nil
	})
	if err := g.freeze(); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, 20*time.Second, "all are frozen", func() error {
		if !g.frozen() {
			return errors.New("they are not")
		}
		return nil
	})
	was := written()
	removeCgroups(hash)
	for _, cmd := range writers {
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() >= 0 {
			t.Errorf("a writer ended by itself: %v", err)
		}
	}
	if now := written(); now != was {
		t.Errorf("they wrote %d bytes after the freeze", now-was)
	}
}
