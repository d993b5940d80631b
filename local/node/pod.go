package node

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/backoff"
	"github.com/sandlane/sandlane/local/node/network"
	"github.com/sandlane/sandlane/local/node/removal"
	"github.com/sandlane/sandlane/local/node/status"
)

// pod is the record of one pod, by UID.
//
// It has one goroutine (pod.run) that opens the network, runs the init containers one
// after the other, then a goroutine per container (container.run), and closes the network
// when all have returned:
//
//	opening ─▶ initializing ─▶ running ─▶ dead ─▶ (deleted in the API) ─▶ forgotten
//	   │            └─ failed, and may not be repeated ─▲
//	   └─ delete, node stop ────────────────────────────▲
//
// A container's goroutine alone starts and stops its process, and writes its
// state under the pod's mutex. Other goroutines only signal it: a changed image by a
// channel, a deletion cancels the pod's stop context, the end of the grace
// period its kill context.
//
// A network that cannot be opened, an image that is not known and a program
// that does not start are retried with back-off and shown in the pod's
// status. A status write is retried until it succeeds or the pod is gone. When
// the node is killed the kernel kills every pod process with it (parent-death
// signal), and its network namespaces, held by descriptors only, vanish; what
// stays (bridge, routes, cgroups, folders) carries the hash of the state
// folder and is removed by Cleanup. From the first node to the last the subnet
// is guarded: an address without a pod is unreachable, and never leads out of
// the machine, also between a node's death and its successor's bridge. A restarted
// node starts the containers again in the same pods on the same addresses, with one
// more restart each, as a kubelet does after a reboot; pods whose policy forbids a
// restart fail.
type pod struct {
	rt     *podRuntime
	client kubernetes.Interface
	emit   func(pod *corev1.Pod, kind, reason, format string, args ...any)

	stop, kill     context.Context // deletion or node stop; end of the grace period
	doStop, doKill context.CancelFunc
	dirty          chan struct{} // capacity 1: the status may have changed
	dead           chan struct{} // closed when no process and no network is left
	gone           chan struct{} // closed when the record is forgotten
	net            network.Pod   // set before containers run
	inits          []*container  // run one after the other, each to its end, before the others
	containers     []*container

	reach      sync.Mutex // orders applyReach; taken before mu
	mu         sync.Mutex // guards all below, and the containers' status
	spec       *corev1.Pod
	reached    bool // the machine can reach the pod
	podIP      string
	startTime  metav1.Time
	conditions []corev1.PodCondition
	reason     string
	message    string
	finished   bool
	deleting   bool
	deadline   time.Time // of the grace period; zero while not deleting
	timer      *time.Timer
}

func newPod(ctx context.Context, rt *podRuntime, client kubernetes.Interface, spec *corev1.Pod,
	emit func(*corev1.Pod, string, string, string, ...any)) *pod {
	p := &pod{
		rt: rt, client: client, emit: emit, spec: spec,
		dirty: make(chan struct{}, 1), dead: make(chan struct{}), gone: make(chan struct{}),
		startTime: metav1.Now(), conditions: spec.Status.Conditions, podIP: spec.Status.PodIP,
	}
	p.stop, p.doStop = context.WithCancel(ctx)
	p.kill, p.doKill = context.WithCancel(ctx)
	if t := spec.Status.StartTime; t != nil {
		p.startTime = *t
	}
	for i := range spec.Spec.InitContainers {
		c := &container{pod: p, index: i, init: true, image: make(chan struct{}, 1), status: status.FirstInit(spec, i)}
		p.inits = append(p.inits, c)
	}
	for i := range spec.Spec.Containers {
		c := &container{pod: p, index: i, image: make(chan struct{}, 1), status: status.First(spec, i)}
		p.containers = append(p.containers, c)
	}
	return p
}

// run is the pod's life. It returns when nothing of it is left on the machine.
func (p *pod) run() {
	defer close(p.dead)
	if !p.open() {
		p.finish()
		return
	}
	if p.initialize() {
		var all sync.WaitGroup
		for _, c := range p.containers {
			if c.status.State.Terminated == nil {
				all.Go(c.run)
			}
		}
		all.Wait()
	}
	if err := p.net.Close(); err != nil {
		p.rt.opts.Log.Error("close a pod's network", "pod", p.current().Name, "error", err)
	}
	p.finish()
}

// initialize runs the init containers; false if one failed for good or the pod stops. After
// a restart of the node they run again, as a kubelet has them after a reboot.
func (p *pod) initialize() bool {
	for _, c := range p.inits {
		if c.status.State.Terminated == nil {
			c.run()
		}
		p.mu.Lock()
		end := c.status.State.Terminated
		p.mu.Unlock()
		if p.stop.Err() != nil || end == nil || end.ExitCode != 0 {
			return false
		}
	}
	return p.stop.Err() == nil
}

// open gets the pod its network, trying until it has one or the pod stops.
func (p *pod) open() bool {
	spec := p.current()
	for _, c := range spec.Spec.InitContainers {
		if c.RestartPolicy != nil {
			p.mu.Lock()
			p.reason, p.message = "SidecarsNotSupported", fmt.Sprintf("the local node runs init containers to their end, and %s has a restart policy of its own", c.Name)
			p.mu.Unlock()
			return false
		}
	}
	for r := (restarts{}); p.stop.Err() == nil; {
		net, err := p.rt.openNetwork(spec)
		p.mu.Lock()
		if err == nil {
			p.net, p.podIP, p.reason, p.message = net, net.Addr().String(), "", ""
		} else {
			p.reason, p.message = "FailedCreatePodSandBox", err.Error()
		}
		p.mu.Unlock()
		p.changed()
		if err == nil {
			p.applyReach()
			return true
		}
		p.event(corev1.EventTypeWarning, "FailedCreatePodSandBox", "%v", err)
		backoff.Sleep(p.stop, max(r.after(0), restartPause/4))
	}
	return false
}

func (p *pod) finish() {
	uid := p.current().UID
	p.rt.addrs.GiveBack(uid)
	_ = removal.Tree(filepath.Join(p.rt.dir, "pods", string(uid)))
	p.mu.Lock()
	p.finished = true
	p.mu.Unlock()
	p.changed()
}

// update takes over what the API says, unless the record knows newer: the
// watch handler is ahead of the library's queue, which may still hold an older
// copy whose labels would open the pod's address again.
func (p *pod) update(spec *corev1.Pod) {
	p.mu.Lock()
	old := p.spec
	if order, err := resourceversion.CompareResourceVersion(spec.ResourceVersion, old.ResourceVersion); err == nil && order < 0 {
		p.mu.Unlock()
		return
	}
	p.spec = spec
	p.mu.Unlock()
	p.applyReach()
	for i, c := range p.containers {
		if old.Spec.Containers[i].Image != spec.Spec.Containers[i].Image {
			select {
			case c.image <- struct{}{}:
			default:
			}
		}
	}
	if len(spec.Spec.ReadinessGates) > 0 {
		p.changed()
	}
	if spec.DeletionTimestamp != nil {
		p.terminate(graceOf(spec))
	}
}

// applyReach lets the machine reach the pod when its phase label says so.
func (p *pod) applyReach() {
	p.reach.Lock() // the last to read the label is the last to act on it
	defer p.reach.Unlock()
	p.mu.Lock()
	net, spec := p.net, p.spec
	p.mu.Unlock()
	if net == nil {
		return
	}
	yes := reachable(spec)
	if err := net.SetReachable(yes); err != nil {
		p.rt.opts.Log.Error("set whether a pod can be reached", "pod", spec.Name, "error", err)
		return
	}
	p.mu.Lock()
	moved := p.reached != yes
	p.reached = yes
	p.mu.Unlock()
	if moved {
		p.changed()
	}
}

// reachable: a pod that is no pool's always is.
func reachable(pod *corev1.Pod) bool {
	if _, ok := pod.Labels[v1alpha1.LabelPool]; !ok {
		return true
	}
	switch v1alpha1.PhaseOf(pod) {
	case v1alpha1.PodIdle, v1alpha1.PodStarting, v1alpha1.PodRunning:
		return true
	}
	return false
}

// terminate stops the pod; a later call may only shorten the grace period.
func (p *pod) terminate(grace time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	deadline := time.Now().Add(grace)
	if p.deleting && !deadline.Before(p.deadline) {
		return
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	p.deleting, p.deadline = true, deadline
	p.timer = time.AfterFunc(grace, p.doKill)
	p.doStop()
}

func (p *pod) graceLeft() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.deleting {
		return 0 // the node stops
	}
	return max(0, time.Until(p.deadline))
}

// graceOf is the pod's termination grace period.
func graceOf(pod *corev1.Pod) time.Duration {
	for _, s := range []*int64{pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds} {
		if s != nil {
			return time.Duration(*s) * time.Second
		}
	}
	return 30 * time.Second
}

func (p *pod) current() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spec
}

// changed has the status written.
func (p *pod) changed() {
	select {
	case p.dirty <- struct{}{}:
	default:
	}
}

func (p *pod) event(kind, reason, format string, args ...any) {
	p.emit(p.current(), kind, reason, format, args...)
}

// status is the pod's status now.
func (p *pod) status() corev1.PodStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := status.Snapshot{
		Spec: &p.spec.Spec, PodIP: p.podIP, StartTime: p.startTime, Reason: p.reason, Message: p.message,
		Finished: p.finished, Now: metav1.Now(),
		Pooled: p.spec.Labels[v1alpha1.LabelPool] != "", Reached: p.reached,
		Previous: append(append([]corev1.PodCondition{}, p.conditions...), status.Foreign(p.spec.Status.Conditions)...),
	}
	for _, c := range p.inits {
		s.InitContainers = append(s.InitContainers, *c.status.DeepCopy())
	}
	for _, c := range p.containers {
		s.Containers = append(s.Containers, *c.status.DeepCopy())
	}
	st := status.Build(s)
	p.conditions = st.Conditions
	return st
}
