package activation

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// stock does what the pool's reconciler and a node would: it keeps pods idle,
// starts what was claimed to be started, and deletes pods that were stopped before
// they were claimed.
type stock struct {
	*world
	ctx  context.Context
	want int
	make chan *corev1.Pod // to be made

	// Owned by the goroutine that the feed calls. A pod is ordered until the feed
	// shows that it may be claimed, or is past that: it may miss what was between.
	idle    map[types.UID]bool
	ordered map[string]bool // by name
}

// keepStock keeps n pods idle until the test ends, and returns when they are: a request
// that waits for a pod in vain writes nothing that could fail.
func (w *world) keepStock(n int) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &stock{world: w, ctx: ctx, want: n, make: make(chan *corev1.Pod, n), idle: make(map[types.UID]bool), ordered: make(map[string]bool)}
	var wg sync.WaitGroup
	work := make(chan *corev1.Pod, 2*stormMany) // the feed must not wait: the gateways share it
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case pod := <-s.make:
					s.check(s.create(pod))
				case pod := <-work:
					s.check(s.follow(pod))
				}
			}
		})
	}
	s.order()
	follow(w, w.feed.pods, func(what watch.EventType, pod *corev1.Pod) {
		if s.see(what, pod) {
			work <- pod.DeepCopy() // a client writes the answer into it
		}
		s.order()
	})
	w.t.Cleanup(func() { cancel(); wg.Wait() })
	kubetest.Eventually(w.t, "stock", func() error {
		idle := 0
		for _, pod := range w.pods() {
			if v1alpha1.RoutableAddress(&pod) != "" {
				idle++
			}
		}
		if idle < s.want {
			return fmt.Errorf("%d pods are idle", idle)
		}
		return nil
	})
}

// order orders what is missing.
func (s *stock) order() {
	for len(s.idle)+len(s.ordered) < s.want {
		pod := idlePod(s.ns)
		s.ordered[pod.Name] = true
		s.make <- pod
	}
}

// see counts, and reports whether there is something to do about the pod.
func (s *stock) see(what watch.EventType, pod *corev1.Pod) bool {
	phase := v1alpha1.PhaseOf(pod)
	if what == watch.Deleted || phase != v1alpha1.PodIdle {
		delete(s.ordered, pod.Name)
		delete(s.idle, pod.UID)
		return what != watch.Deleted && (phase == v1alpha1.PodStarting || phase == v1alpha1.PodStopping)
	}
	if v1alpha1.RoutableAddress(pod) != "" {
		delete(s.ordered, pod.Name)
		s.idle[pod.UID] = true
	}
	return false
}

func (s *stock) create(pod *corev1.Pod) error {
	if err := s.c.Create(s.ctx, pod); err != nil {
		return fmt.Errorf("create a pod: %w", err)
	}
	pod.Status.PodIP = pod.Annotations[v1alpha1.AnnotationAddress]
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	return s.c.Status().Update(s.ctx, pod)
}

// follow starts or deletes a pod, as it has now to be.
func (s *stock) follow(pod *corev1.Pod) error {
	if v1alpha1.PhaseOf(pod) == v1alpha1.PodStarting {
		patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"labels":{%q:%q}}}`, pod.ResourceVersion, v1alpha1.LabelPhase, v1alpha1.PodRunning)
		return s.c.Patch(s.ctx, pod, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	if pod.Annotations[v1alpha1.AnnotationClaim] != "" {
		return nil // it has a last owner, for the judge to find
	}
	return s.c.Delete(s.ctx, pod, client.Preconditions{UID: &pod.UID})
}

// check fails the test for what is not the stock's own race.
func (s *stock) check(err error) {
	if err != nil && s.ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !errors.Is(err, context.Canceled) {
		s.t.Errorf("keeping stock: %v", err)
	}
}

// idlePod is a pod that may be claimed once its status shows its address.
func idlePod(ns string) *corev1.Pod {
	n := nextAddress.Add(1)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: kubetest.Name("pod"),
			Labels:      map[string]string{v1alpha1.LabelPool: "pool", v1alpha1.LabelPhase: string(v1alpha1.PodIdle)},
			Annotations: map[string]string{v1alpha1.AnnotationAddress: fmt.Sprintf("10.%d.%d.%d", 1+n>>16, n>>8&0xff, n&0xff)},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "a"}}},
	}
}
