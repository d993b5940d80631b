package schedule_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
)

// apiServer answers every claim PATCH with the pod as it is then.
type apiServer struct{ client.Client }

func (apiServer) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	pod := o.(*corev1.Pod)
	pod.Annotations = map[string]string{v1alpha1.AnnotationAddress: "10.0.0.7"}
	pod.Labels = map[string]string{v1alpha1.LabelPhase: string(v1alpha1.PodRunning)}
	pod.Status.PodIP = "10.0.0.7"
	return nil
}

// One pool, one idle pod, one request for it.
func Example() {
	pools := schedule.NewSet(apiServer{})
	defer pools.Shutdown()

	// The watch tells of the pool and its idle pods.
	pools.PoolChanged("default", "echo", true)
	idle := &corev1.Pod{}
	idle.Namespace, idle.Name, idle.UID = "default", "echo-1", "u1"
	idle.Labels = map[string]string{v1alpha1.LabelPool: "echo", v1alpha1.LabelPhase: string(v1alpha1.PodIdle)}
	idle.Annotations = map[string]string{v1alpha1.AnnotationAddress: "10.0.0.7"}
	idle.Status.PodIP = "10.0.0.7"
	pools.Offer(idle)

	// A request asks for a pod.
	pool, ok := pools.Get("default", "echo")
	if !ok {
		fmt.Println("no such pool")
		return
	}
	results := make(chan schedule.ClaimResult, 1)
	request := &schedule.ClaimRequest{
		SandboxID: "hello", Deadline: time.Now().Add(30 * time.Second), ResultCh: results,
		Bind: func(_ context.Context, pod *corev1.Pod) error {
			fmt.Println("bind hello to", schedule.BindingOf(pod).PodName)
			return nil
		},
	}
	if !pool.Enqueue(request) {
		fmt.Println("the queue is full: come back later")
		return
	}
	result := <-results
	fmt.Println("claimed", result.Pod.Name, result.Err)
	// Output:
	// bind hello to echo-1
	// claimed echo-1 <nil>
}
