package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
)

// provider holds the records of all pods of the node. Virtual-kubelet's
// PodController creates them; the node's own watch handler (observe, gone)
// passes on changes at once, without the controller's queues. Safe for
// concurrent use.
type provider struct {
	ctx      context.Context // the node's life
	rt       *podRuntime
	client   kubernetes.Interface
	recorder record.EventRecorder
	log      *slog.Logger
	running  sync.WaitGroup

	mu     sync.Mutex // guards all below
	pods   map[types.UID]*pod
	byName map[types.NamespacedName]types.UID // the newest pod of a name
	doomed map[types.UID]bool                 // deleted before it was created here
}

func newProvider(ctx context.Context, rt *podRuntime, client kubernetes.Interface, recorder record.EventRecorder, log *slog.Logger) *provider {
	return &provider{
		ctx: ctx, rt: rt, client: client, recorder: recorder, log: log,
		pods: map[types.UID]*pod{}, byName: map[types.NamespacedName]types.UID{}, doomed: map[types.UID]bool{},
	}
}

func nameOf(p *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// CreatePod makes the record and starts it. It never fails: what goes wrong is
// retried by the record and shown in the pod's status. An older pod of the
// same name, forced out of the API, is killed.
func (v *provider) CreatePod(_ context.Context, spec *corev1.Pod) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.doomed[spec.UID] || v.pods[spec.UID] != nil || v.ctx.Err() != nil {
		return nil
	}
	if old := v.pods[v.byName[nameOf(spec)]]; old != nil {
		old.terminate(0)
	}
	p := newPod(v.ctx, v.rt, v.client, spec, v.emit)
	v.pods[spec.UID], v.byName[nameOf(spec)] = p, spec.UID
	v.running.Go(p.run)
	v.running.Go(func() { v.report(p) })
	p.changed()
	return nil
}

// UpdatePod passes a changed pod on.
func (v *provider) UpdatePod(ctx context.Context, spec *corev1.Pod) error {
	v.mu.Lock()
	p := v.pods[spec.UID]
	v.mu.Unlock()
	if p == nil {
		return v.CreatePod(ctx, spec)
	}
	p.update(spec)
	return nil
}

// DeletePod stops a pod that is being deleted, at once if it is gone already.
func (v *provider) DeletePod(_ context.Context, spec *corev1.Pod) error {
	v.mu.Lock()
	p := v.pods[spec.UID]
	v.mu.Unlock()
	if p == nil {
		return errdefs.NotFound("no such pod")
	}
	if spec.DeletionTimestamp == nil {
		p.terminate(0)
	} else {
		p.terminate(graceOf(spec))
	}
	return nil
}

// GetPod returns the newest pod of the name as the API last showed it.
func (v *provider) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	p, err := v.find(namespace, name)
	if err != nil {
		return nil, err
	}
	return p.current(), nil
}

// GetPodStatus returns the newest pod's status.
func (v *provider) GetPodStatus(_ context.Context, namespace, name string) (*corev1.PodStatus, error) {
	p, err := v.find(namespace, name)
	if err != nil {
		return nil, err
	}
	st := p.status()
	return &st, nil
}

// GetPods returns all pods.
func (v *provider) GetPods(context.Context) ([]*corev1.Pod, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []*corev1.Pod
	for _, p := range v.pods {
		all = append(all, p.current())
	}
	return all, nil
}

// NotifyPods is there because without it the library polls. The node writes
// status itself (report).
func (v *provider) NotifyPods(context.Context, func(*corev1.Pod)) {}

func (v *provider) find(namespace, name string) (*pod, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p := v.pods[v.byName[types.NamespacedName{Namespace: namespace, Name: name}]]; p != nil {
		return p, nil
	}
	return nil, errdefs.NotFoundf("pod %s/%s is not on this node", namespace, name)
}

// findContainer is for logs and exec.
func (v *provider) findContainer(namespace, name, container string) (*pod, *container, error) {
	p, err := v.find(namespace, name)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range slices.Concat(p.inits, p.containers) {
		if c.name() == container {
			return p, c, nil
		}
	}
	return nil, nil, errdefs.NotFoundf("pod %s/%s has no container %q", namespace, name, container)
}

func (v *provider) emit(spec *corev1.Pod, kind, reason, format string, args ...any) {
	if v.ctx.Err() == nil {
		v.recorder.Event(spec, kind, reason, fmt.Sprintf(format, args...))
	}
}

// observe is the watch handler: what must not wait for a queue.
func (v *provider) observe(spec *corev1.Pod) {
	v.mu.Lock()
	p := v.pods[spec.UID]
	unborn := p == nil && spec.DeletionTimestamp != nil && !v.doomed[spec.UID]
	if unborn {
		v.doomed[spec.UID] = true
	}
	v.mu.Unlock()
	switch {
	case p != nil:
		p.update(spec)
	case unborn:
		v.rt.addrs.GiveBack(spec.UID)
		v.running.Go(func() { v.deleteObject(spec) })
	}
}

// gone is the watch handler of a pod that is no longer in the API.
func (v *provider) gone(spec *corev1.Pod) {
	v.mu.Lock()
	p := v.pods[spec.UID]
	delete(v.doomed, spec.UID)
	v.mu.Unlock()
	if p == nil {
		v.rt.addrs.GiveBack(spec.UID)
		return
	}
	p.terminate(0)
	v.running.Go(func() {
		<-p.dead
		v.forget(p)
	})
}

// wait returns when every pod is dead and reported; the node's context must be
// done.
func (v *provider) wait() { v.running.Wait() }
