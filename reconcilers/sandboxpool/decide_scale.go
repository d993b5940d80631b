package sandboxpool

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// How many pods:
//
// One decision (decideScale) says how many pods to make, to take away because
// they are too many, and to replace because of their template. It is carried out
// only while the cache shows all that this process wrote (PoolExpectations).
//
//	idle, too many ──▶ marked ──scaleDownProtection──▶ deleted
//	                     ├──claimed──▶ (the delete fails by its resourceVersion)
//	                     └──wanted again──▶ unmarked
//
// A broken template is to cost one pod, not two hundred: one pod of it is made at a time
// until one was Ready, then up to twice as many as have been. A pod that is deleted as
// surplus may just be claimed, so it is marked first; a rollout never takes the last
// available pod (retire.go).

// limits is what the pool asks for, and what its troubles allow.
type limits struct {
	replicas, maxPods int
	// waiting is how many pods are wanted beyond the replicas, for claims that wait.
	waiting int
	// unknown: more claims may wait than that, so the pool does not shrink.
	unknown bool
	// probing: pods have not turned Ready lately, so one at a time is tried.
	probing bool
	// window, if above 0, is how many pods may be made at a time: the API server
	// refused some.
	window int
	// proven is how many pods of the template were Ready at a time, in this
	// process's life.
	proven int
}

func limitsOf(pool *v1alpha1.SandboxPool, t troubles, a asked) limits {
	l := limits{
		replicas: int(pool.Spec.Replicas), maxPods: int(pool.Spec.MaxPods), waiting: a.waiting, unknown: !a.known,
		probing: t.unready != nil, proven: t.proven,
	}
	if t.refused != nil {
		l.window = t.refused.window
	}
	if draining(pool) {
		l.waiting, l.unknown = 0, false
	}
	return l
}

// draining reports whether the pool's env has it no more. No claim goes there, so nothing is
// kept for those that wait.
func draining(pool *v1alpha1.SandboxPool) bool {
	return pool != nil && metav1.HasAnnotation(pool.ObjectMeta, v1alpha1.AnnotationDraining)
}

// wanted is the number of unclaimed pods to have: the replicas are the stock that is
// left when all that wait are served. Each claim that lands takes a pod from it and its
// sandbox from those that wait, so that a burst orders each of its pods once.
func (l limits) wanted() int {
	if l.maxPods == 0 {
		return min(l.replicas+l.waiting, max(l.replicas, mostUnclaimed))
	}
	return l.replicas + l.waiting
}

// leastWaiting is how many pods may wait for their addresses in any pool, also in
// one with fewer replicas.
const leastWaiting = 20

// scaling is how many pods to create or delete.
type scaling struct {
	create int
	// deleteWaiting is how many of those that wait for their address to delete.
	deleteWaiting int
	// remove is how many of the spare pods go because there are too many, replace
	// how many of the outdated idle ones because of their template. At most one of
	// them is above 0.
	remove, replace int
	// ordered of those to create are for claims that wait.
	ordered int
	// held: there are too many pods, and they stay since it is not known what waits.
	held bool
	// full: maxPods keeps the pool from having as many unclaimed pods as are wanted.
	full bool
	// short: more pods are wanted than trust allows to make now.
	short bool
}

// decideScale is the scale decision; it is pure.
//
// A broken template costs one pod, not two hundred: one of it is made at a time until one was
// Ready, then up to twice as many as have been.
//
// A new template is rolled out from a stock that stays: as long as no pod of it
// has been Ready one is made in addition, then idle pods of the old one are
// replaced while enough others are available.
//
// A pod that waits for its address keeps it from those that are made in its
// place: were it deleted first, the next might get the same one, and again. It is
// stock once the address is free. It goes earlier if maxPods leaves no room for
// another, or if too many wait.
//
// While it is not known what waits nothing goes for being too many; maxPods holds all
// the same, and rollouts go on.
func decideScale(c counts, l limits) scaling {
	var s scaling
	deleteWaiting := func(n int) { s.deleteWaiting = max(s.deleteWaiting, min(n, len(c.waiting))) }
	if l.wanted() == 0 && !l.unknown {
		deleteWaiting(len(c.waiting))
	} else {
		deleteWaiting(len(c.waiting) - max(l.wanted(), leastWaiting))
	}
	if l.maxPods > 0 {
		surplus := c.total - c.deleting - l.maxPods
		deleteWaiting(surplus)
		if surplus -= s.deleteWaiting; surplus > 0 && c.unclaimed() > 0 {
			if !l.unknown {
				surplus = max(surplus, superfluous(c, l, 0))
			}
			s.remove, s.full = min(surplus, c.unclaimed()), true
			return s
		}
	}
	if surplus := superfluous(c, l, surge(c, l)); surplus > 0 && !l.unknown {
		s.remove = surplus
		return s
	} else if surplus > 0 {
		s.held = true
	}
	missing := l.wanted() - c.coming()
	s.create, s.replace = max(missing+surge(c, l), 0), replaceable(c, l)
	if l.maxPods > 0 {
		room := room(c, l)
		s.full = room < missing
		deleteWaiting(s.create - room)
		s.create = min(s.create, room)
	}
	trusted := min(s.create, max(trust(c, l)-c.warming, 0))
	if l.window > 0 {
		trusted = min(trusted, l.window)
	}
	s.create, s.short = trusted, trusted < s.create
	s.ordered = s.create - min(s.create, max(l.replicas+surge(c, l)-c.coming(), 0))
	return s
}

// superfluous is how many unclaimed pods are neither wanted, for the rollout's surge, nor
// ordered for a claim and to stay for now.
func superfluous(c counts, l limits, surge int) int {
	return max(c.unclaimed()-max(l.wanted()+surge, len(c.ordered)), 0)
}

// trust is how many pods may be warming at a time: one, until one of the
// template has been Ready; then twice as many as have. So a template whose pods
// never start makes one pod at a time, and a good one 1, 3, 9, …
func trust(c counts, l limits) int {
	if l.probing {
		return 1
	}
	return max(1, 2*c.proven, 2*l.proven)
}

func room(c counts, l limits) int { return max(l.maxPods-c.total, 0) }

// maxUnavailable is how many pods of a stock may be missing for a rollout.
func maxUnavailable(replicas int) int { return max(1, replicas/4) }

// surge is how many pods a rollout has in addition to the stock.
func surge(c counts, l limits) int {
	if c.outdated > 0 && l.replicas > 0 && (c.proven == 0 || l.replicas <= maxUnavailable(l.replicas)) {
		return 1
	}
	return 0
}

// replaceable is how many outdated idle pods may go now. The last available one
// never does, but for a pool that maxPods allows only one pod at all.
func replaceable(c counts, l limits) int {
	if c.outdated == 0 {
		return 0
	}
	if l.maxPods > 0 && room(c, l) == 0 && c.warming == 0 && c.proven == 0 {
		// No pod can be made in addition: the first of the new template takes the
		// place of an old one.
		if c.available() > 1 || l.maxPods == 1 || c.unavailableOutdated > 0 {
			return 1
		}
		return 0
	}
	if c.proven == 0 {
		return 0
	}
	least := max(l.replicas-maxUnavailable(l.replicas), min(l.replicas, 1))
	readyOnes := min(c.outdated-c.unavailableOutdated, max(c.available()-least, 0))
	return c.unavailableOutdated + readyOnes
}
