package activation

import (
	"context"
	"errors"
	"fmt"
	"sync"

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
// all gateways of a test. It comes back when the API server ends a watch.
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

// catchUp waits until the feed has seen every pod and sandbox as it now is: a
// gateway that starts then has not missed what the test did before.
func (w *world) catchUp() {
	w.t.Helper()
	for _, pod := range w.pods() {
		w.seen(w.feed.pods, &pod)
	}
	list := &v1alpha1.SandboxList{}
	if err := w.c.List(w.t.Context(), list); err != nil {
		w.t.Fatal(err)
	}
	for _, s := range list.Items {
		if s.Spec.Namespace == w.ns { // others come and go
			w.seen(w.feed.sandboxes, &s)
		}
	}
}

// seen waits until the informer has the object as it is, or a newer one.
func (w *world) seen(i cache.SharedIndexInformer, o client.Object) {
	w.t.Helper()
	kubetest.Eventually(w.t, "the feed to see "+o.GetName(), func() error {
		seen, ok, err := i.GetStore().Get(o)
		if err != nil || !ok {
			return errors.Join(err, errors.New("it is not there"))
		}
		rv := seen.(client.Object).GetResourceVersion()
		cmp, err := resourceversion.CompareResourceVersion(rv, o.GetResourceVersion())
		if err == nil && cmp < 0 {
			err = fmt.Errorf("it is at %s, seen at %s", o.GetResourceVersion(), rv)
		}
		return err
	})
}

// follow calls see for each pod or sandbox that there is, before it returns, and
// then for each change.
func follow[T client.Object](w *world, i cache.SharedIndexInformer, see func(what watch.EventType, o T)) {
	handler, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
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
	kubetest.Eventually(w.t, "a gateway to hear of what there is", func() error {
		if !handler.HasSynced() {
			return errors.New("it has not")
		}
		return nil
	})
}
