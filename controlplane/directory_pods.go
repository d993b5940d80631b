package controlplane

import (
	"context"
	"net"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
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
	pods, err := d.listPods(ctx)
	if err != nil {
		d.o.Log.Warn("gateways whose lease is over may still have streams open: their pods cannot be listed", "error", err)
		return
	}
	for i := range pods {
		d.seePod(&pods[i])
		delete(wanted, pods[i].UID)
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

// listPods lists the pods of the system namespace by a consistent read.
func (d *Directory) listPods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := d.o.Pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// controlPort names the port of a gateway's container at which controllers call it, and of
// no other process's. A pod's ports cannot be changed, unlike its labels.
const controlPort = "control"

// addPods takes in gateways of which there is a pod and no lease: the lease may have
// vanished before this Directory saw it. The list of pods was sent after that of leases:
// a gateway that holds routes was in one of them, as a lease or as a pod. Which process
// runs there is not known, so any that answers at the pod's address counts. A pod that was
// never ready does not count, such as one that fails at each start: it never routed. Each counts
// the longest lease, unless it answers, joins or its pod is over. mu is held.
func (d *Directory) addPods(pods []corev1.Pod) {
	d.podsListed = true
	leased, longest := map[types.UID]bool{}, DefaultLeaseDuration
	for _, e := range d.entries {
		leased[e.pod], longest = true, max(longest, e.Duration)
	}
	for i := range pods {
		p := &pods[i]
		address, ran := gatewayIn(p)
		name := p.Name + "-" + string(p.UID)
		if _, known := d.entries[name]; known || !ran || leased[p.UID] || podOver(p) || neverReady(p) {
			continue
		}
		d.o.Log.Warn("a gateway's pod has no lease: it may hold routes", "pod", p.Name)
		d.entries[name] = &entry{
			Gateway: Gateway{Name: name, Address: address, Holder: Holder{Mark: MarkRevoked}, Duration: longest, Gone: true},
			lease:   &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: d.rv}}, pod: p.UID, renewed: time.Now(), sealed: true,
		}
	}
}

// neverReady reports whether the containers of a pod were never all ready. The kubelet sets a
// pod's startTime in the same step as the first time of the condition, which it changes only
// with the condition's status. What does not show that surely may have been ready, and so may
// a pod whose gateway is ready now.
func neverReady(p *corev1.Pod) bool {
	isGateway := func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(port corev1.ContainerPort) bool { return port.Name == controlPort })
	}
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		if s.Ready && slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == s.Name && isGateway(c) }) {
			return false
		}
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.ContainersReady {
			return c.Status == corev1.ConditionFalse && p.Status.StartTime != nil && c.LastTransitionTime.Equal(p.Status.StartTime)
		}
	}
	return false
}

// gatewayIn returns the address of the gateway in a pod. ran is false if there is none, or
// the kubelet has not started it yet.
func gatewayIn(p *corev1.Pod) (address string, ran bool) {
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		for _, port := range c.Ports {
			if port.Name != controlPort || p.Status.PodIP == "" {
				continue
			}
			for _, s := range p.Status.ContainerStatuses {
				ran = ran || s.Name == c.Name && (s.State.Running != nil || s.State.Terminated != nil || s.RestartCount > 0)
			}
			return net.JoinHostPort(p.Status.PodIP, strconv.Itoa(int(port.ContainerPort))), ran
		}
	}
	return "", false
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
