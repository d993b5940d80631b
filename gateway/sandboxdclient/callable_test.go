package sandboxdclient

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
	"github.com/sandlane/sandlane/routecache"
)

var errAway = errors.New("the API server is away")

// A pod may be called only if it backs the sandbox, is not ending, and its address still
// belongs to the sandbox.
func TestCallable(t *testing.T) {
	for name, tc := range map[string]struct {
		pod    func(*corev1.Pod)
		since  func(*testing.T, *routecache.Cache) // called between Begin and Callable
		read   error
		want   error
		backed bool // a pod backs it, callable or not
	}{
		"runs":            {backed: true},
		"of another":      {pod: func(p *corev1.Pod) { p.Annotations[v1alpha1.AnnotationClaim] = "other" }, want: ErrPodGone},
		"of another name": {pod: func(p *corev1.Pod) { p.Name = "other" }, want: ErrPodGone},
		"failed":          {pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, want: ErrPodGone},
		"being deleted": {pod: func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = new(metav1.Now()), []string{v1alpha1.FinalizerPod}
		}, want: ErrPodGone},
		"without an address": {pod: func(p *corev1.Pod) { p.Status.PodIP = "" }, want: ErrPodGone, backed: true},
		"at another address": {pod: func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.2" }, want: ErrPodGone, backed: true},
		"changed":            {since: func(_ *testing.T, c *routecache.Cache) { c.Invalidate("s") }, want: writes.ErrStale, backed: true},
		"fenced": {since: func(t *testing.T, c *routecache.Cache) {
			fence := routecache.Fence{Addr: netip.MustParseAddr("10.0.0.1"), RV: 1 << 41}
			if err := c.Fence(t.Context(), []routecache.Fence{fence}); err != nil {
				t.Error(err)
			}
		}, want: writes.ErrStale, backed: true},
		"unread": {read: errAway, want: errAway},
	} {
		t.Run(name, func(t *testing.T) {
			s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
			s.Spec.Namespace, s.Spec.Binding = "n", &v1alpha1.Binding{ClaimID: "c", PodName: "pod", PodUID: "u"}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "n", Name: "pod", UID: "u", Labels: map[string]string{v1alpha1.LabelSandboxID: "s"},
				Annotations: map[string]string{v1alpha1.AnnotationClaim: "c", v1alpha1.AnnotationAddress: "10.0.0.1"},
			}}
			pod.Status.PodIP = "10.0.0.1"
			if tc.pod != nil {
				tc.pod(pod)
			}
			cache := routecache.New(10)
			cache.PodsSeen(1 << 40)
			api := interceptor.NewClient(fake.NewClientBuilder().WithObjects(pod).Build(), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if tc.since != nil {
						tc.since(t, cache)
					}
					if tc.read != nil {
						return tc.read
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			pods := NewPods(api, cache)
			got, err := pods.Callable(t.Context(), pods.Begin("s"), s)
			if !errors.Is(err, tc.want) || (got != nil) != (tc.want == nil) {
				t.Errorf("callable: %v, want %v", err, tc.want)
			}
			if got, err := pods.Backing(t.Context(), s); (got != nil) != tc.backed || (err == nil) != tc.backed {
				t.Errorf("backing: %v", err)
			}
		})
	}
	if _, err := NewPods(nil, routecache.New(10)).Backing(t.Context(), &v1alpha1.Sandbox{}); !errors.Is(err, ErrPodGone) {
		t.Errorf("without a binding: %v", err)
	}
}
