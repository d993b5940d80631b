package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodLifeInBothIsolations(t *testing.T) {
	for _, isolation := range []Isolation{IsolationFull, IsolationNone} {
		t.Run(string(isolation), func(t *testing.T) {
			n := startNode(t, isolation)
			n.create(t, echoPod("a"), echoPod("b"))
			a, b := n.await(t, "a", "is ready", isReady), n.await(t, "b", "is ready", isReady)
			if a.Status.PodIP == b.Status.PodIP {
				t.Fatalf("both have the address %s", a.Status.PodIP)
			}
			for _, pod := range []*corev1.Pod{a, b} {
				id, err := ask(t.Context(), pod.Status.PodIP)
				if err != nil || id.Pod != pod.Name || id.PodUID != string(pod.UID) {
					t.Errorf("%s at %s answers as %+v, %v", pod.Name, pod.Status.PodIP, id, err)
				}
			}
			st := a.Status.ContainerStatuses[0]
			if a.Status.Phase != corev1.PodRunning || !st.Ready || st.State.Running == nil || st.ContainerID == "" ||
				st.ImageID != "local/echo@sha256:1111" || a.Spec.NodeName != n.opts.Name {
				t.Errorf("node %q, status %+v", a.Spec.NodeName, a.Status)
			}
			begun := time.Now()
			grace := int64(30)
			if err := n.client.CoreV1().Pods(n.ns).Delete(t.Context(), "a", metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
				t.Fatal(err)
			}
			n.awaitGone(t, "a")
			t.Logf("deleted %s after the request, of 30 s grace", time.Since(begun).Round(time.Millisecond))
			if _, err := ask(t.Context(), a.Status.PodIP); err == nil {
				t.Error("the deleted pod answers")
			}
		})
	}
}
