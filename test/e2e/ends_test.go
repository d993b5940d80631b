package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/stack"
)

// obedient serves on its port until a file says how its first process ends.
const obedient = `python3 -m http.server 8000 & while sleep 0.2; do if [ -e /tmp/end ]; then . /tmp/end; fi; done`

// fromOutside: the machine kills the pod's processes.
const fromOutside = ""

// A sandbox whose process ends keeps a record of how, its pod is replaced, and
// no request is routed to it.
func TestHowSandboxesEnd(t *testing.T) {
	t.Parallel()
	ns := shared.Namespace(t)
	pool := stack.EchoPool(ns, "pool", 2, func(p *v1alpha1.SandboxPool) {
		c := &p.Spec.Template.Template.Spec.Containers[0]
		c.Command = []string{"/bin/sh", "-c", obedient}
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("96Mi")}
	})
	if err := shared.Client.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	shared.WaitIdle(t, ns, "pool", 2)
	for _, tt := range []struct {
		name, how       string
		reason, message string
		code            int32
	}{
		{"exit", "exit 3", "Crashed", "exit code 3", 3},
		{"success", "exit 0", "Completed Restarted", "exit code 0", 0}, // whichever the controller sees
		{"memory", `exec python3 -c 'b = bytearray(b"x") * (1 << 30)'`, "OOMKilled", "too much memory", 137},
		{"killed", fromOutside, "Crashed", "signal 9", 137},
	} {
		t.Run(tt.name, func(t *testing.T) {
			request := stack.Request{ID: "ends-" + tt.name, Pool: ns + "/pool"}
			if a := shared.Do(t, nil, request); a.Status != 200 {
				t.Fatalf("first request: %v", a)
			}
			sb, _ := shared.Sandbox(t, request.ID)
			pod := sb.Spec.Binding.PodName
			if tt.how == fromOutside {
				if stack.KillPod(shared.Up.Pids["node"], sb.Spec.Binding.PodUID) == 0 {
					t.Fatal("no process of the pod was found")
				}
			} else if out, err := inside(t, ns, pod, fmt.Sprintf("cat >/tmp/.end <<'X'\n%s\nX\nmv /tmp/.end /tmp/end", tt.how)); err != nil {
				t.Logf("the container's end may have taken this command along: %v: %s", err, out)
			}
			shared.Eventually(t, time.Minute, "the sandbox to have ended", func() (bool, string) {
				sb, _ = shared.Sandbox(t, request.ID)
				return sb.Status.Phase == v1alpha1.SandboxEnded && sb.Status.Stop != nil, fmt.Sprintf("%+v", sb.Status)
			})
			stop := sb.Status.Stop
			if stop.StopReason != v1alpha1.StopFailed || !strings.Contains(tt.reason, stop.FailureReason) || !strings.Contains(stop.FailureMessage, tt.message) ||
				stop.ExitCode == nil || *stop.ExitCode != tt.code || stop.PodName != pod || stop.TerminatedAt == nil {
				t.Errorf("record %+v, want %s, %q, code %d", stop, tt.reason, tt.message, tt.code)
			}
			if a := shared.Do(t, nil, request); a.Status != 502 {
				t.Errorf("a request to an ended sandbox: %v", a)
			}
			shared.WaitIdle(t, ns, "pool", 2)
			shared.Eventually(t, time.Minute, "its pod to go", func() (bool, string) {
				for _, p := range shared.PodsOf(t, ns) {
					if p.Name == pod {
						return false, string(v1alpha1.PhaseOf(&p))
					}
				}
				return true, ""
			})
		})
	}
}

// Pools whose pods cannot start say why, make few pods, and fill up once that is
// mended.
func TestPoolsThatCannotStart(t *testing.T) {
	t.Parallel()
	ns := shared.Namespace(t)
	for _, tt := range []struct {
		name    string
		breaks  func(*corev1.Container)
		reason  string
		message string
	}{
		{"image", func(c *corev1.Container) { c.Image = "local/unknown" }, "ErrImagePull", "local/unknown"},
		{"probe", func(c *corev1.Container) { c.ReadinessProbe.HTTPGet.Port.IntVal = 8001 }, "StartupTimeout", "not Ready within 2s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pool := stack.EchoPool(ns, tt.name, 10, func(p *v1alpha1.SandboxPool) {
				p.Spec.StartupTimeout = &metav1.Duration{Duration: 2 * time.Second}
				tt.breaks(&p.Spec.Template.Template.Spec.Containers[0])
			})
			if tt.name == "image" { // shown at once, not after a timeout
				pool.Spec.StartupTimeout = nil
			}
			if err := shared.Client.Create(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			shared.Eventually(t, 30*time.Second, "the pool to be degraded", func() (bool, string) {
				if err := shared.Client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
					t.Fatal(err)
				}
				c := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.PoolConditionDegraded)
				return c != nil && c.Status == metav1.ConditionTrue && c.Reason == tt.reason && strings.Contains(c.Message, tt.message), fmt.Sprintf("%+v", c)
			})
			if n := len(shared.PodsOf(t, ns)); n > 2 {
				t.Errorf("%d pods of a template that does not start", n)
			}
			good := pool.DeepCopy()
			good.Spec.Template = stack.EchoPool(ns, tt.name, 10).Spec.Template
			good.Spec.Replicas = 3
			if err := shared.Client.Patch(t.Context(), good, client.MergeFrom(pool)); err != nil {
				t.Fatal(err)
			}
			shared.WaitIdle(t, ns, tt.name, 3)
			if err := shared.Client.Delete(t.Context(), good); err != nil {
				t.Fatal(err)
			}
			shared.Eventually(t, 30*time.Second, "its pods to go", func() (bool, string) {
				n := len(shared.PodsOf(t, ns))
				return n == 0, fmt.Sprint(n)
			})
		})
	}
}
