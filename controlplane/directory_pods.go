package controlplane

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// GatewayPods is what a Directory needs of the API to see that the pod of a
// gateway has ended: the pods of the system namespace. client-go's
// CoreV1().Pods(namespace) is one.
type GatewayPods interface {
	List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// podOver reports whether the kubelet says that nothing of a pod runs any more,
// and will not again: then no route of its gateway is left, nor an Envoy to use
// one. The phase alone does not say so, others write it as well (the garbage
// collector of pods, for nodes that it does not see); nor does it that the pod is
// gone, which a deletion with no grace does to one that runs.
func podOver(p *corev1.Pod) bool {
	if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
		return false // its containers may be started again
	}
	ended := map[string]bool{}
	for _, list := range [][]corev1.ContainerStatus{
		p.Status.ContainerStatuses, p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses,
	} {
		for i := range list {
			ended[list[i].Name] = list[i].State.Terminated != nil
		}
	}
	for i := range p.Spec.Containers {
		if !ended[p.Spec.Containers[i].Name] {
			return false
		}
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		// One that is no sidecar is over before the others start.
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways && !ended[c.Name] {
			return false
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if !ended[p.Spec.EphemeralContainers[i].Name] {
			return false
		}
	}
	return len(p.Spec.Containers) > 0
}

// seePod takes in a pod as it stood when it was read, or just before it was
// deleted.
func (d *Directory) seePod(p *corev1.Pod) {
	if !podOver(p) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.endedPods[p.UID]; !known {
		d.endedPods[p.UID] = time.Now()
	}
}

// podEnded reports whether the pod of a lease has ended. mu is held.
func (d *Directory) podEnded(e *entry) bool {
	_, ended := d.endedPods[e.pod]
	return e.pod != "" && ended
}

// podCounts reports whether a lease's end is not the end of its gateway: its pod may
// run, and an Envoy in it with streams that are in use. mu is held.
func (d *Directory) podCounts(e *entry) bool { return e.pod != "" && d.o.Pods != nil }

// lookForPods ends the gateways whose lease is over and whose pod is not there any
// more, by a live list of pods that is sent after the lease's end. While the pods
// cannot be listed these gateways stay, and are asked.
func (d *Directory) lookForPods(ctx context.Context) {
	wanted := d.podsWaitedFor()
	if len(wanted) == 0 {
		return
	}
	// No resourceVersion: a consistent read.
	list, err := d.o.Pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		d.o.Log.Warn("gateways whose lease is over may still have streams open: their pods cannot be listed", "error", err)
		return
	}
	for i := range list.Items {
		d.seePod(&list.Items[i])
		delete(wanted, list.Items[i].UID)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, e := range d.entries {
		if gone := wanted[e.pod]; gone && e.expired && !e.ended {
			d.o.Log.Warn("the pod of a gateway whose lease is over is gone", "lease", name, "holder", e.Holder.String())
			d.end(name, e)
		}
	}
}

// podsWaitedFor returns the pods of gateways whose lease is over.
func (d *Directory) podsWaitedFor() map[types.UID]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	wanted := map[types.UID]bool{}
	for _, e := range d.entries {
		if e.expired && !e.ended && d.podCounts(e) {
			wanted[e.pod] = true
		}
	}
	return wanted
}

// podReflector feeds the watch of pods into the Directory. What ends while the
// watch is broken and is gone before the next list is never seen: its lease
// counts its time out, after which lookForPods finds that it is gone.
func (d *Directory) podReflector() *cache.Reflector {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return d.o.Pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return d.o.Pods.Watch(ctx, o)
		},
	}
	return cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, d.o.Pods),
		&corev1.Pod{}, podStore{d}, cache.ReflectorOptions{Name: "gateway pods"})
}

// podStore lets a Reflector feed the Directory.
type podStore struct{ d *Directory }

func (s podStore) Add(obj any) error    { s.d.seePod(obj.(*corev1.Pod)); return nil }
func (s podStore) Update(obj any) error { s.d.seePod(obj.(*corev1.Pod)); return nil }
func (s podStore) Delete(obj any) error { s.d.seePod(obj.(*corev1.Pod)); return nil }
func (s podStore) Resync() error        { return nil }
func (s podStore) Replace(objs []any, _ string) error {
	for _, o := range objs {
		s.d.seePod(o.(*corev1.Pod))
	}
	return nil
}

// forget drops what was noted so long ago that nothing can refer to it.
func forget(noted map[types.UID]time.Time) {
	for uid, at := range noted {
		if time.Since(at) > rememberOver {
			delete(noted, uid)
		}
	}
}
