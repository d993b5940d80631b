package idle

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/bench/suite"
)

// fleet serves a watch in place of an API server. It has a number of pods and sandboxes,
// which never change, and serves nothing else.
type fleet struct {
	client.WithWatch
	pods, sandboxes int
}

// Watch implements client.WithWatch: it sends all objects, and then the bookmark that ends the
// initial events.
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
		case *v1alpha1.SandboxEnvList:
			end = &v1alpha1.SandboxEnv{}
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

// List implements client.WithWatch. The index does not list: it gets its objects by a watch.
func (fleet) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return fmt.Errorf("lists are not served here")
}

// listWatch gives the pods to an informer, in one list or at the beginning of a watch.
func (f fleet) listWatch() cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			all := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "10000000"}}
			for i := range f.pods {
				all.Items = append(all.Items, *pod(i))
			}
			return all, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil && *o.SendInitialEvents {
				return f.Watch(ctx, &corev1.PodList{})
			}
			return watch.NewFake(), nil
		},
	}
}

type stream struct {
	events chan watch.Event
	stop   func()
}

func (s *stream) Stop()                          { s.stop() }
func (s *stream) ResultChan() <-chan watch.Event { return s.events }

func sandboxID(i int) string { return fmt.Sprintf("i%020d", i) }

// pod returns the i-th pod, in memory of its own like every object that a watch decodes.
func pod(i int) *corev1.Pod {
	text, err := suite.RunningPod(sandboxID(i), i).Marshal()
	if err != nil {
		panic(err) // it is in memory
	}
	p := &corev1.Pod{}
	if err := p.Unmarshal(text); err != nil {
		panic(err) // it was just encoded
	}
	p.ResourceVersion = strconv.Itoa(i + 1)
	return p
}

// sandbox returns the i-th sandbox, which is bound to the i-th pod.
func sandbox(i int) *v1alpha1.Sandbox {
	text, err := json.Marshal(suite.RunningSandbox(sandboxID(i), i))
	if err != nil {
		panic(err) // it is in memory
	}
	s := &v1alpha1.Sandbox{}
	if err := json.Unmarshal(text, s); err != nil {
		panic(err) // it was just encoded
	}
	s.ResourceVersion = strconv.Itoa(i + 1)
	return s
}
