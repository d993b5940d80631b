package backend

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/index"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
	"github.com/sandlane/sandlane/test/kubetest"
)

// noEndings knows of no end that this gateway wrote.
type noEndings struct{}

func (noEndings) Add(string)                              {}
func (noEndings) Correct(a routing.Answer) routing.Answer { return a }

// While the logs of a sandbox's pod are read, the pod may be given to another sandbox, and the
// gateway be told of that by a fence alone: its watch is behind.
func TestLogsOfAFencedPodAreNotShown(t *testing.T) {
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "own-1", UID: "s-uid"}}
	s.Spec.Namespace, s.Spec.Pool, s.Spec.Binding = "team", "base", &v1alpha1.Binding{PodName: "p", PodUID: "p-uid", ClaimID: "c"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "p", UID: "p-uid",
		Labels:      map[string]string{v1alpha1.LabelPool: "base", v1alpha1.LabelPhase: string(v1alpha1.PodRunning), v1alpha1.LabelSandboxID: "own-1"},
		Annotations: map[string]string{v1alpha1.AnnotationClaim: "c", v1alpha1.AnnotationAddress: "10.0.0.1"},
	}, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"}}
	c := fake.NewClientBuilder().WithScheme(kubetest.Scheme()).WithObjects(s, pod).Build()
	for _, fenced := range []bool{false, true} {
		cache := routecache.New(8)
		kubelet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if fenced {
				if err := cache.Fence(r.Context(), []routecache.Fence{{Addr: netip.MustParseAddr("10.0.0.1"), RV: 1 << 40}}); err != nil {
					t.Error(err)
				}
			}
			_, _ = fmt.Fprintln(w, "2026-01-02T03:04:05Z a line")
		}))
		live := index.NewLive(index.LiveOptions{Reader: c})
		x := New(Options{
			API: c, Pods: kubernetes.NewForConfigOrDie(&rest.Config{Host: kubelet.URL}), Cache: cache, Index: index.New(index.Options{Client: c}),
			Live: live, Endings: noEndings{}, Node: NewNodeSize(c, slog.Default()),
		})
		lines, err := x.Logs(t.Context(), "team", "own-1", 10)
		if want := map[bool]int{false: 1, true: 0}[fenced]; err != nil || len(lines) != want {
			t.Errorf("fenced: %v: %v, %v", fenced, lines, err)
		}
		kubelet.Close()
	}
}
