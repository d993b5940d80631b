package reconcilers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// TestFailuresLeaveARecord breaks a sandbox's pod in the ways that a status or a
// deletion shows, and reads what is kept of it.
func TestFailuresLeaveARecord(t *testing.T) {
	disrupted := func(reason, message string) func(*world, *corev1.Pod) {
		return func(w *world, pod *corev1.Pod) {
			w.setStatus(pod, func(s *corev1.PodStatus) {
				s.Conditions = append(s.Conditions, corev1.PodCondition{
					Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.Now()})
			})
			w.deleteNow(pod)
		}
	}
	for _, tt := range []struct {
		name            string
		damage          func(*world, *corev1.Pod)
		reason, message string
	}{
		{"deleted", func(w *world, pod *corev1.Pod) { w.deleteNow(pod) }, "Deleted", "was deleted"},
		{"evicted", disrupted("EvictionByEvictionAPI", "Eviction API: evicting"), "Evicted", "was evicted: Eviction API"},
		{"node lost", disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"), "NodeLost", "node node of its pod"},
		{"started again in the second of its claim", func(w *world, pod *corev1.Pod) {
			w.setStatus(pod, func(s *corev1.PodStatus) {
				c := &s.ContainerStatuses[0]
				c.RestartCount = 1
				c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 9, Reason: "Error", FinishedAt: metav1.Now()}
			})
		}, "Crashed", "exit code 9"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.pool("p", 1, 0)
			w.await("p", v1alpha1.PodIdle, 1)
			s, pod := w.running("p")
			tt.damage(w, pod)
			s = w.awaitSandbox(s, v1alpha1.SandboxEnded)
			stop := s.Status.Stop
			if stop == nil || stop.StopReason != v1alpha1.StopFailed || stop.FailureReason != tt.reason || !strings.Contains(stop.FailureMessage, tt.message) ||
				stop.PodName != pod.Name || stop.TerminatedAt == nil {
				t.Errorf("stop record %+v, want %s, %q", stop, tt.reason, tt.message)
			}
			if s.Spec.End.Reason != v1alpha1.EndFailed || s.Status.FencedAt == nil || len(w.gateways.of(pod.Status.PodIP)) == 0 {
				t.Errorf("end %+v, fenced %v", s.Spec.End, s.Status.FencedAt)
			}
			kubetest.Eventually(t, "the Event of the failure alone", func() error {
				if told := w.eventsOf(s); !slices.Equal(told, []string{"Ended"}) {
					return fmt.Errorf("%v", told)
				}
				return nil
			})
			w.awaitGone(pod)
			w.await("p", v1alpha1.PodIdle, 1)
		})
	}
}

// TestNamespaceGoesWhileSandboxesRun deletes what the namespace controller would,
// with 50 sandboxes running and no gateway that answers.
func TestNamespaceGoesWhileSandboxesRun(t *testing.T) {
	w := newWorld(t)
	w.pool("p", 50, 0)
	w.awaitIdle("p", 50)
	w.gateways.setAway(true)
	ids := map[string]string{}
	for _, pod := range w.pods("p", v1alpha1.PodIdle) {
		s := w.newSandbox("p", &pod)
		if err := w.c.Patch(t.Context(), pod.DeepCopy(), claimPatch(s, v1alpha1.PodRunning).Build()); err != nil {
			t.Fatalf("claiming pod %s: %v", pod.Name, err)
		}
		ids[s.Name] = pod.Status.PodIP
	}
	for id := range ids {
		w.awaitSandbox(&v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: id}}, v1alpha1.SandboxRunning)
	}
	for _, what := range []client.Object{&corev1.Pod{}, &v1alpha1.SandboxPool{}} {
		if err := w.c.DeleteAllOf(t.Context(), what, client.InNamespace(w.ns)); err != nil {
			t.Fatal(err)
		}
	}
	kubetest.Eventually(t, "nothing left in the namespace", func() error {
		if left := w.pods("p", ""); len(left) > 0 {
			return fmt.Errorf("%d pods", len(left))
		}
		var pools v1alpha1.SandboxPoolList
		if err := w.c.List(t.Context(), &pools, client.InNamespace(w.ns)); err != nil || len(pools.Items) > 0 {
			return fmt.Errorf("%d pools, error %v", len(pools.Items), err) //nolint:errorlint // for the reader
		}
		return nil
	})
	for id, ip := range ids {
		if s := w.sandbox(id); s == nil || s.Spec.End == nil || s.Status.Address != ip || s.Status.FencedAt != nil || s.Status.Stop == nil {
			t.Errorf("sandbox %s was not recorded: %+v", id, s)
		}
	}
}
