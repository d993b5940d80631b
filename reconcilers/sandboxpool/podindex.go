package sandboxpool

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// podIndex holds each pool's pods as the watch has shown them, so that an event of
// one pod costs no look at the others. Its pods are those of the manager's cache:
// they are read and never changed. The zero value is ready. It is safe for
// concurrent use.
//
// A pod is settled if it is claimed and running and nothing is to be done to it
// before its next event. Settled pods are counted and not looked at, unless their
// pool goes. A claimed pod that needs anything (it failed, stops, starts) is not
// settled, so whatever becomes of a Sandbox concerns no settled pod.
type podIndex struct {
	mu    sync.Mutex
	pools map[types.NamespacedName]*members // guarded by mu
}

// members are the pods of one pool name, by their own names.
type members struct {
	settled map[string]*corev1.Pod
	open    map[string]openPod
	// counts are the settled pods by the pool object that owns them and the template
	// that they were made from.
	counts map[origin]int
}

type origin struct {
	owner types.UID
	hash  string
}

// openPod is a pod that is not settled. quiet: until its next event only the
// deletion of its pool asks for a step.
type openPod struct {
	pod   *corev1.Pod
	quiet bool
}

func originOf(pod *corev1.Pod) origin {
	o := origin{hash: pod.Annotations[v1alpha1.AnnotationTemplateHash]}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		o.owner = owner.UID
	}
	return o
}

// isQuiet reports whether a pod that is idle or running, and whose pool stays,
// needs nothing before its next event. It is pure.
func isQuiet(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return !hasFinalizer(pod)
	}
	switch v1alpha1.PhaseOf(pod) {
	case v1alpha1.PodIdle, v1alpha1.PodRunning:
		return decide(view{pod: pod}, time.Time{}) == decision{}
	default:
		return false
	}
}

// observe takes in what the watch shows of a pod of the pool.
func (r *podIndex) observe(pool types.NamespacedName, pod *corev1.Pod) {
	quiet := isQuiet(pod)
	settled := quiet && pod.DeletionTimestamp == nil && v1alpha1.PhaseOf(pod) == v1alpha1.PodRunning && claimed(pod)
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.pools[pool]
	if m == nil {
		m = &members{settled: map[string]*corev1.Pod{}, open: map[string]openPod{}, counts: map[origin]int{}}
		if r.pools == nil {
			r.pools = map[types.NamespacedName]*members{}
		}
		r.pools[pool] = m
	}
	m.remove(pod.Name)
	if settled {
		m.settled[pod.Name] = pod
		m.counts[originOf(pod)]++
	} else {
		m.open[pod.Name] = openPod{pod, quiet}
	}
}

// gone takes in that the pool has no pod of the name any more.
func (r *podIndex) gone(pool types.NamespacedName, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.pools[pool]
	if m == nil {
		return
	}
	m.remove(name)
	if len(m.settled)+len(m.open) == 0 {
		delete(r.pools, pool)
	}
}

func (m *members) remove(name string) {
	delete(m.open, name)
	if pod, ok := m.settled[name]; ok {
		delete(m.settled, name)
		o := originOf(pod)
		if m.counts[o]--; m.counts[o] == 0 {
			delete(m.counts, o)
		}
	}
}

// split returns the pods of the pool name that must be looked at, and how many of
// the others there are by the hash of their template. owner is the pool object
// that stays; empty if there is none: then all pods are looked at, and so are
// those of another owner.
func (r *podIndex) split(pool types.NamespacedName, owner types.UID) (open []openPod, settled map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.pools[pool]
	if m == nil {
		return nil, nil
	}
	open, settled = make([]openPod, 0, len(m.open)), make(map[string]int, len(m.counts))
	for _, p := range m.open {
		p.quiet = p.quiet && (p.pod.DeletionTimestamp != nil || owner != "" && originOf(p.pod).owner == owner)
		open = append(open, p)
	}
	strangers := false
	for o, n := range m.counts {
		if owner == "" || o.owner != owner {
			strangers = true
		} else {
			settled[o.hash] += n
		}
	}
	if strangers {
		for _, pod := range m.settled {
			if owner == "" || originOf(pod).owner != owner {
				open = append(open, openPod{pod: pod})
			}
		}
	}
	return open, settled
}
