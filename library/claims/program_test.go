package claims_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/checkout"
	"github.com/sandlane/sandlane/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// build builds a command of the example module as a program outside this repository would,
// against the versions that this repository has pinned.
func build(t *testing.T, command string) string {
	t.Helper()
	root, dir := checkout.Path(t), t.TempDir()
	for to, from := range map[string]string{"go.mod": root + "/library/example/go.mod", "go.sum": root + "/go.sum"} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, command)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-modfile="+filepath.Join(dir, "go.mod"), "-mod=mod", "-o", program, "./"+command)
	cmd.Dir = root + "/library/example"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as make compiles, so that both share the build cache
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// A module of its own runs the pool reconciler and the idle timeout with their exported
// fields alone, claims a pod by a scheduler, and releases it.
func TestProgramOfAnotherModule(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a program")
	}
	c, ns := kubetest.Client(t), kubetest.Namespace(t)
	program := build(t, "pools")
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"}, Spec: v1alpha1.SandboxPoolSpec{
		Replicas: 1, Template: &v1alpha1.SandboxTemplateSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			NodeName: "node", Containers: []corev1.Container{{Name: "main", Image: "image", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
			}}},
		}}},
	}}
	if err := c.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, kubetest.KubeConfig(t), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, program, ns, "p", kubetest.Name("s"))
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // no more output then
		if t.Failed() {
			t.Logf("the program said:\n%s", &out)
		}
	})
	ready(t, c, ns)
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "of example, user somebody, images map[main:image], 1 CPU") ||
		!strings.Contains(out.String(), "released: Completed, images map[main:image]") {
		t.Error(err)
	}
}

// ready does what a kubelet does to the pool's pod.
func ready(t *testing.T, c client.Client, ns string) {
	t.Helper()
	var pods corev1.PodList
	kubetest.Eventually(t, "a pod of the program's", func() error {
		if err := c.List(t.Context(), &pods, client.InNamespace(ns)); err != nil || len(pods.Items) > 0 {
			return err
		}
		return os.ErrNotExist
	})
	pod := &pods.Items[0]
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.1.2.3", PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", Ready: true, Image: "image", ImageID: "sha256:1", ContainerID: "containerd://1",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}},
	}
	if err := c.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}
