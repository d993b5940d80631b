package reconcilers_test

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// node plays the kubelet: it turns the namespace's pods Ready, and deletes them
// for good when they were deleted.
type node struct {
	w *world

	mu sync.Mutex
	// address gives a pod its IP; "" keeps it from starting.
	address func(*corev1.Pod) string
}

// newNode follows the pods by a watch: a list every few milliseconds would cost more
// than the controller under test.
func newNode(w *world) *node {
	n := &node{w: w, address: func(*corev1.Pod) string { return newAddress() }}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			n.follow(ctx, tick.C)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	w.t.Cleanup(func() { cancel(); <-done })
	return n
}

// use sets where addresses come from.
func (n *node) use(address func(*corev1.Pod) string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.address = address
}

// follow serves the pods of one watch until that ends. A pod that cannot be served
// yet (it has no address, or a write failed) is tried again at each tick.
func (n *node) follow(ctx context.Context, tick <-chan time.Time) {
	events, err := n.w.c.Watch(ctx, &corev1.PodList{}, client.InNamespace(n.w.ns))
	if err != nil {
		return
	}
	defer events.Stop()
	unserved := map[types.UID]*corev1.Pod{}
	for {
		select {
		case e, open := <-events.ResultChan():
			pod, isPod := e.Object.(*corev1.Pod)
			if !open || !isPod {
				return
			}
			if e.Type == watch.Deleted || n.serve(ctx, pod) {
				delete(unserved, pod.UID)
			} else {
				unserved[pod.UID] = pod
			}
		case <-tick:
			for uid, pod := range unserved {
				if n.serve(ctx, pod) {
					delete(unserved, uid)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// serve does for one pod what a kubelet would, and tells whether that is done.
func (n *node) serve(ctx context.Context, pod *corev1.Pod) bool {
	switch {
	case pod.DeletionTimestamp != nil:
		if ptr.Deref(pod.DeletionGracePeriodSeconds, 0) == 0 {
			return true
		}
		err := n.w.c.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
		return client.IgnoreNotFound(err) == nil
	case pod.Status.PodIP != "" || pod.Status.Phase == corev1.PodFailed:
		return true
	}
	n.mu.Lock()
	ip := n.address(pod)
	n.mu.Unlock()
	if ip == "" {
		return false
	}
	before := pod.DeepCopy()
	pod = pod.DeepCopy()
	run(pod, ip)
	return n.w.c.Status().Patch(ctx, pod, client.MergeFrom(before)) == nil
}

// run writes the status of a Ready pod.
func run(pod *corev1.Pod, ip string) {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIP = ip
	pod.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	pod.Status.ContainerStatuses = nil
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		})
	}
}

// setStatus writes a pod's status as a kubelet would.
func (w *world) setStatus(p *corev1.Pod, change func(*corev1.PodStatus)) {
	w.t.Helper()
	pod := w.pod(p)
	if pod == nil {
		w.t.Fatalf("pod %s is gone", p.Name)
	}
	before := pod.DeepCopy()
	change(&pod.Status)
	if err := w.c.Status().Patch(w.t.Context(), pod, client.MergeFrom(before)); err != nil {
		w.t.Fatalf("writing the status of pod %s: %v", p.Name, err)
	}
}

// deleteNow deletes a pod the way `kubectl delete --force --grace-period=0` does.
func (w *world) deleteNow(p *corev1.Pod) {
	w.t.Helper()
	if err := w.c.Delete(w.t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
		w.t.Fatalf("deleting pod %s: %v", p.Name, err)
	}
}

func phaseOf(p *corev1.Pod) v1alpha1.PodPhase {
	if p == nil {
		return "gone"
	}
	return v1alpha1.PhaseOf(p)
}
