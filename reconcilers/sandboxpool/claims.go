package sandboxpool

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
)

// servedKept is how long it is remembered that a sandbox had a pod: longer than an answer
// of a gateway counts.
const servedKept = 10 * time.Second

// claims are the sandboxes that have pods, by the claims that the watch has shown. The
// gateways' reports of waiting sandboxes are up to a few seconds old, and a sandbox that
// has got its pod since needs no other: each claim lowers the number of unclaimed pods, so
// its sandbox must stop counting as waiting at the same time. The zero value is
// ready. It is safe for concurrent use.
//
// An event is noted here before the podIndex has it: a decision that sees a pod claimed
// sees its sandbox served.
type claims struct {
	mu    sync.Mutex
	pools map[types.NamespacedName]*poolClaims // guarded by mu
}

// poolClaims are those of the pods of one pool name. Sandboxes stand by the hashes of
// their IDs.
type poolClaims struct {
	byPod map[string]uint64 // the sandbox whose claim is on the pod of the name and has not ended
	pods  map[uint64]int    // how many such pods the sandbox has
	// served is when a sandbox was last seen to get a pod, or to have none any more: an
	// answer of a poll that began before does not say that it waits now.
	served  map[uint64]time.Time
	trimmed time.Time // when served was last searched for what is old
}

// observe takes in what the watch shows of a pod of the pool.
func (c *claims) observe(pool types.NamespacedName, pod *corev1.Pod, now time.Time) {
	id, serves := servedBy(pod)
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pools[pool]
	if p == nil {
		if !serves {
			return
		}
		p = &poolClaims{byPod: map[string]uint64{}, pods: map[uint64]int{}, served: map[uint64]time.Time{}, trimmed: now}
		if c.pools == nil {
			c.pools = map[types.NamespacedName]*poolClaims{}
		}
		c.pools[pool] = p
	}
	if was, had := p.byPod[pod.Name]; had && serves && was == id {
		return
	}
	p.remove(pod.Name, now)
	if !serves {
		return
	}
	p.byPod[pod.Name], p.served[id] = id, now
	p.pods[id]++
	if now.Sub(p.trimmed) > servedKept {
		p.trimmed = now
		maps.DeleteFunc(p.served, func(_ uint64, at time.Time) bool { return now.Sub(at) > servedKept })
	}
}

// gone takes in that the pool has no pod of the name any more.
func (c *claims) gone(pool types.NamespacedName, name string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pools[pool]; p != nil {
		p.remove(name, now)
	}
}

// forget drops a pool that is gone, with its last pod.
func (c *claims) forget(pool types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pools, pool)
}

func (p *poolClaims) remove(name string, now time.Time) {
	id, had := p.byPod[name]
	if !had {
		return
	}
	delete(p.byPod, name)
	p.served[id] = now
	if p.pods[id]--; p.pods[id] == 0 {
		delete(p.pods, id)
	}
}

// without counts those of the sandboxes that have no pod of the pool and had none since
// the poll that reported them.
func (c *claims) without(pool types.NamespacedName, ids map[uint64]time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pools[pool]
	if p == nil {
		return len(ids)
	}
	n := 0
	for id, asked := range ids {
		if p.pods[id] == 0 && asked.After(p.served[id]) {
			n++
		}
	}
	return n
}

// servedBy returns the sandbox whose claim is on the pod and not over.
func servedBy(pod *corev1.Pod) (id uint64, serves bool) {
	name := pod.Labels[v1alpha1.LabelSandboxID]
	if name == "" || !claimed(pod) || pod.DeletionTimestamp != nil {
		return 0, false
	}
	if phase := v1alpha1.PhaseOf(pod); phase != v1alpha1.PodStarting && phase != v1alpha1.PodRunning {
		return 0, false
	}
	return schedule.HashID(name), true
}
