package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	binderWorkers   = 16
	binderRetryBase = 20 * time.Millisecond
	binderRetryMax  = 5 * time.Second
)

// binder is the cluster's scheduler: every pod that has no node gets this one.
type binder struct {
	client kubernetes.Interface
	node   string
	log    *slog.Logger
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]
	store  cache.Store
}

// newBinder registers itself with an informer of pods without a node.
func newBinder(client kubernetes.Interface, node string, log *slog.Logger, informer cache.SharedIndexInformer) (*binder, error) {
	b := &binder{
		client: client, node: node, log: log, store: informer.GetStore(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](binderRetryBase, binderRetryMax)),
	}
	enqueue := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok {
			b.queue.Add(cache.ObjectName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
	})
	return b, err
}

// run binds until ctx is done.
func (b *binder) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range binderWorkers {
		workers.Go(func() {
			for b.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	b.queue.ShutDown()
	workers.Wait()
}

func (b *binder) next(ctx context.Context) bool {
	key, shutdown := b.queue.Get()
	if shutdown {
		return false
	}
	defer b.queue.Done(key)
	obj, exists, _ := b.store.GetByKey(key.String())
	pod, ok := obj.(*corev1.Pod)
	if !exists || !ok || !bindable(pod) {
		b.queue.Forget(key)
		return true
	}
	err := b.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: b.node},
	}, metav1.CreateOptions{})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		b.queue.Forget(key)
		return true
	}
	if ctx.Err() == nil {
		b.log.Warn("bind a pod to the node", "pod", key.String(), "error", err)
	}
	b.queue.AddRateLimited(key)
	return true
}

func bindable(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0
}
