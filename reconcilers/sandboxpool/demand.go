package sandboxpool

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/kubeclient/writes"
)

// Claims that wait:
//
// Gateways say what waits (Demand), and the pool itself orders for it: no cooldown
// delays a claim that waits. A sandbox counts until its claim is seen on a pod (claims),
// so that W of them on an empty pool make W pods and the replicas, although each claim
// empties a place. A pod that was ordered (annotation sandlane.dev/ordered) stays until
// it is Ready and then idle for a minute, also when its sandbox has left, but not in a pool
// that drains, where no claim goes; without
// maxPods a pool has at most a hundred unclaimed pods by orders. While a gateway has
// not answered nothing is deleted for being too many; that of an old template is
// replaced, and maxPods holds. With replicas 0 a pool has no stock and serves all the
// same, each time after a pod's start.

// Demand says what waits for pods, over all gateways.
type Demand interface {
	// Waiting returns a hash of the ID of each sandbox that waits for a pod of the pool
	// (schedule.HashID), and when the newest poll that heard of it began. known is false
	// if a gateway has not answered: then at least these wait.
	Waiting(pool types.NamespacedName) (ids map[uint64]time.Time, known bool)
	// Soon asks for a poll at once. It does not block.
	Soon()
}

const (
	// orderedStays is how long a pod that was made for a waiting claim stays idle at least,
	// also when the claim has gone: clients that give up often come back.
	orderedStays = time.Minute
	// mostUnclaimed bounds the unclaimed pods of a pool without maxPods, if its replicas
	// do not ask for more.
	mostUnclaimed = 100
	// unknownRecheck is when a pool is looked at again that has too many pods and may not
	// shrink, since it is not known what waits.
	unknownRecheck = time.Second
	// noteStays is how long a note that claims wait stays at least: gateways are asked
	// once more before it goes.
	noteStays = 2 * time.Second
)

// demandOf returns how many sandboxes wait for a pod of the pool, but for those whose
// claims are on pods already, and whether that is all. Without a Demand none waits.
func (r *SandboxPoolReconciler) demandOf(key types.NamespacedName) asked {
	if r.Demand == nil {
		return asked{known: true}
	}
	ids, known := r.Demand.Waiting(key)
	return asked{waiting: r.claims.without(key, ids), known: known}
}

// tidyNote removes the annotation by which gateways say that claims wait, once none does;
// before that it has the gateways polled. It returns when to look again.
func (r *SandboxPoolReconciler) tidyNote(ctx context.Context, pool *v1alpha1.SandboxPool, a asked) (time.Duration, error) {
	note, has := pool.Annotations[v1alpha1.AnnotationScaleUpPending]
	if !has || r.Demand == nil {
		return 0, nil
	}
	key := types.NamespacedName{Namespace: pool.Namespace, Name: pool.Name}
	age, first := r.notes.age(key, note, r.now())
	if first {
		r.Demand.Soon() // if the poll finds a waiting claim, DemandChanged queues this pool again
	}
	switch {
	case a.waiting > 0:
		return 0, nil // DemandChanged queues this pool again when no claim waits any more
	case !a.known:
		return unknownRecheck, nil
	case age < noteStays:
		return noteStays - age, nil
	}
	path := writes.Annotation(v1alpha1.AnnotationScaleUpPending)
	target := &v1alpha1.SandboxPool{}
	target.Namespace, target.Name = pool.Namespace, pool.Name
	err := r.Client.Patch(ctx, target, writes.For(pool.UID).Test(path, note).Remove(path).Build())
	if err != nil && !writes.Moved(err) {
		return 0, fmt.Errorf("taking the note of waiting claims off the pool: %w", err)
	}
	return 0, nil
}

// notes are the notes of gateways that claims wait, and when this process first saw
// them. The zero value is ready. It is safe for concurrent use.
type notes struct {
	mu    sync.Mutex
	pools map[types.NamespacedName]seenNote
}

type seenNote struct {
	note string
	at   time.Time
}

// age is how long the pool has been seen with this note; first: it is new.
func (n *notes) age(pool types.NamespacedName, note string, now time.Time) (age time.Duration, first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if seen, ok := n.pools[pool]; ok && seen.note == note {
		return now.Sub(seen.at), false
	}
	if n.pools == nil {
		n.pools = map[types.NamespacedName]seenNote{}
	}
	n.pools[pool] = seenNote{note, now}
	return 0, true
}

func (n *notes) forget(pool types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pools, pool)
}

// isOrdered reports whether the pod was made for a claim that waited and is to stay for
// now: until it is Ready, and then for orderedStays.
func isOrdered(pod *corev1.Pod, now time.Time) bool {
	if pod.Annotations[v1alpha1.AnnotationOrdered] == "" {
		return false
	}
	return v1alpha1.PhaseOf(pod) == v1alpha1.PodWarming || now.Sub(idleSince(pod)) < orderedStays
}
