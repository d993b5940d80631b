package activation

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
)

// oneSandbox answers reads of a sandbox.
type oneSandbox struct {
	client.Client
	s v1alpha1.Sandbox
}

func (c *oneSandbox) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	c.s.DeepCopyInto(o.(*v1alpha1.Sandbox))
	return nil
}

// The pod that a resume has claimed becomes ready and is routed to only if the sandbox still
// has that claim and is not paused again.
func TestFinishResumed(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion = "n", "pod", "u", "7"
	pod.Labels = map[string]string{v1alpha1.LabelPhase: string(v1alpha1.PodRunning), v1alpha1.LabelSandboxID: "s"}
	pod.Annotations = map[string]string{v1alpha1.AnnotationClaim: "c", v1alpha1.AnnotationAddress: "10.0.0.1"}
	pod.Status.PodIP, pod.Status.PodIPs = "10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.Sandbox)
		want   error
		ready  bool
	}{
		"as it was bound":     {func(*v1alpha1.Sandbox) {}, nil, true},
		"paused again":        {func(s *v1alpha1.Sandbox) { s.Spec.Paused = true }, errReadAgain, false},
		"without its binding": {func(s *v1alpha1.Sandbox) { s.Spec.Binding = nil }, errReadAgain, false},
		"bound anew":          {func(s *v1alpha1.Sandbox) { s.Spec.Binding.ClaimID = "d" }, errReadAgain, false},
		"ended":               {func(s *v1alpha1.Sandbox) { s.Spec.End = &v1alpha1.End{} }, routing.ErrEnded, false},
		"being deleted":       {func(s *v1alpha1.Sandbox) { s.DeletionTimestamp = new(metav1.Now()) }, routing.ErrEnded, false},
	} {
		c := &oneSandbox{}
		c.s.Name = "s"
		c.s.Spec = v1alpha1.SandboxSpec{Namespace: "n", Pool: "p", Binding: &v1alpha1.Binding{ClaimID: "c", PodName: "pod", PodUID: "u"}}
		tc.change(&c.s)
		ready := false
		a := New(Options{
			Client: c, Cache: routecache.New(10),
			ClaimUse: func(string, string) *routecache.ClaimUse { return &routecache.ClaimUse{} },
			Ready:    func(context.Context, *v1alpha1.Sandbox, *corev1.Pod) error { ready = true; return nil },
		})
		act := newActivation(a, request{Request: routing.Request{ID: "s", Namespace: "n", Pool: "p", Deadline: time.Now().Add(time.Minute)}})
		err := act.finishResumed("c", pod)
		act.cancel()
		if !errors.Is(err, tc.want) || ready != tc.ready || (a.o.Cache.Len() > 0) != tc.ready {
			t.Errorf("%s: %v, ready %v, %d routes", name, err, ready, a.o.Cache.Len())
		}
	}
}
