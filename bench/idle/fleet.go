package idle

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/bench/suite"
)

// fleet stands in for an API server's watch: so many pods and sandboxes, which
// never change. It answers nothing else.
type fleet struct {
	client.WithWatch
	pods, sandboxes int
}

// Watch implements client.WithWatch: what there is, and a bookmark that says so.
func (f fleet) Watch(ctx context.Context, list client.ObjectList, _ ...client.ListOption) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan watch.Event)
	w := &stream{events: events, stop: cancel}
	go func() {
		defer close(events)
		send := func(kind watch.EventType, o runtime.Object) bool {
			select {
			case events <- watch.Event{Type: kind, Object: o}:
				return true
			case <-ctx.Done():
				return false
			}
		}
		var end client.Object
		switch list.(type) {
		case *corev1.PodList:
			for i := range f.pods {
				if !send(watch.Added, pod(i)) {
					return
				}
			}
			end = &corev1.Pod{}
		case *v1alpha1.SandboxList:
			for i := range f.sandboxes {
				if !send(watch.Added, sandbox(i)) {
					return
				}
			}
			end = &v1alpha1.Sandbox{}
		case *v1alpha1.SandboxPoolList:
			end = &v1alpha1.SandboxPool{}
		default:
			end = &v1alpha1.SandboxTemplate{}
		}
		end.SetResourceVersion("10000000")
		end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		if send(watch.Bookmark, end) {
			<-ctx.Done()
		}
	}()
	return w, nil
}

// List implements client.WithWatch. The index streams.
func (fleet) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return fmt.Errorf("lists are not served here")
}

type stream struct {
	events chan watch.Event
	stop   func()
}

func (s *stream) Stop()                          { s.stop() }
func (s *stream) ResultChan() <-chan watch.Event { return s.events }

func sandboxID(i int) string { return fmt.Sprintf("i%020d", i) }
func claimID(i int) string   { return fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i+1) }
func podName(i int) string   { return fmt.Sprintf("python-pool-%010d", i) }
func podUID(i int) types.UID { return types.UID(fmt.Sprintf("%08x-0000-4000-9000-%012x", i, i+2)) }

// pod is the i-th, claimed and running.
func pod(i int) *corev1.Pod {
	addr := suite.Address(uint32(i)).String()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: suite.Namespace, Name: podName(i), UID: podUID(i), ResourceVersion: strconv.Itoa(i + 1),
			Labels: map[string]string{
				v1alpha1.LabelPool: suite.Pool, v1alpha1.LabelPhase: string(v1alpha1.PodRunning), v1alpha1.LabelSandboxID: sandboxID(i),
			},
			Annotations: map[string]string{
				v1alpha1.AnnotationAddress: addr, v1alpha1.AnnotationClaim: claimID(i), v1alpha1.AnnotationTemplateHash: "5c1d7cc9f8",
				v1alpha1.AnnotationClaimedAt: "2026-01-01T00:00:00.000000000Z", v1alpha1.AnnotationStartedAt: "2026-01-01T00:00:00.000000000Z",
			},
			Finalizers: []string{v1alpha1.FinalizerPod},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/python:3.13"}}},
		Status: corev1.PodStatus{
			PodIP: addr, Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// sandbox is the i-th, bound to the i-th pod.
func sandbox(i int) *v1alpha1.Sandbox {
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
		Name: sandboxID(i), UID: podUID(i), ResourceVersion: strconv.Itoa(i + 1), Finalizers: []string{v1alpha1.FinalizerSandbox},
	}}
	s.Spec.Namespace, s.Spec.Pool, s.Spec.Team = suite.Namespace, suite.Pool, "team"
	s.Spec.Binding = &v1alpha1.Binding{ClaimID: claimID(i), PodName: podName(i), PodUID: string(podUID(i))}
	return s
}
