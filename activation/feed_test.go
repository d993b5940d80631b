package activation

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// feed is one watch of the pods of a namespace, and one of all sandboxes, for
// all who follow them. It comes back when the API server ends a watch.
type feed struct{ pods, sandboxes cache.SharedIndexInformer }

func (w *world) startFeed() *feed {
	informer := func(list func() client.ObjectList, of client.Object, opts ...client.ListOption) cache.SharedIndexInformer {
		with := func(o metav1.ListOptions) *client.ListOptions {
			all := &client.ListOptions{Raw: &o}
			for _, opt := range opts {
				opt.ApplyToList(all)
			}
			return all
		}
		return cache.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				l := list()
				return l, w.c.List(ctx, l, with(o))
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return w.c.Watch(ctx, list(), with(o))
			},
		}, of, 0, nil)
	}
	f := &feed{
		pods:      informer(func() client.ObjectList { return &corev1.PodList{} }, &corev1.Pod{}, client.InNamespace(w.ns)),
		sandboxes: informer(func() client.ObjectList { return &v1alpha1.SandboxList{} }, &v1alpha1.Sandbox{}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f.pods.RunWithContext(ctx) })
	wg.Go(func() { f.sandboxes.RunWithContext(ctx) })
	w.t.Cleanup(func() { cancel(); wg.Wait() })
	return f
}

// catchUp waits until the feed has seen every pod as it now is: a gateway that
// starts then has not missed what the test did before.
func (w *world) catchUp() {
	w.t.Helper()
	pods := w.pods()
	kubetest.Eventually(w.t, time.Minute, "the feed to see the pods", func() error {
		for i := range pods {
			seen, ok, err := w.feed.pods.GetStore().Get(&pods[i])
			if err != nil {
				return fmt.Errorf("look for pod %s: %w", pods[i].Name, err)
			}
			if !ok {
				return fmt.Errorf("pod %s is not seen", pods[i].Name)
			}
			rv := seen.(*corev1.Pod).ResourceVersion
			cmp, err := resourceversion.CompareResourceVersion(rv, pods[i].ResourceVersion)
			if err != nil {
				return fmt.Errorf("compare versions of pod %s: %w", pods[i].Name, err)
			}
			if cmp < 0 {
				return fmt.Errorf("pod %s is seen at %s, and is at %s", pods[i].Name, rv, pods[i].ResourceVersion)
			}
		}
		return nil
	})
}

// follow calls see for each pod or sandbox that there is, and each change.
func follow[T client.Object](w *world, i cache.SharedIndexInformer, see func(what watch.EventType, o T)) {
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { see(watch.Added, o.(T)) },
		UpdateFunc: func(_, o any) { see(watch.Modified, o.(T)) },
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			see(watch.Deleted, o.(T))
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
