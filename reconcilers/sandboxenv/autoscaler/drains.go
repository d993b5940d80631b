package autoscaler

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// stuckAfter is how long a drain may take before an Event says that it is stuck, and the
// time between two such Events.
const stuckAfter = 5 * time.Minute

// drain is a step down whose pods are not gone yet. Further steps meanwhile belong to it.
type drain struct {
	// noticed is when it began, or when an Event last called it stuck.
	noticed time.Time
}

// drains sends an Event when a drain begins, when it ends, and per stuckAfter if it does
// not end.
func (r *Reconciler) drains(env *v1alpha1.SandboxEnv, changes []change, now time.Time) {
	for i := range changes {
		c := &changes[i]
		began, ended, stuck := r.memory.drain(c.from.pool, int32(c.to.Replicas), c.to.Replicas < c.from.Replicas, now) //nolint:gosec // within the API's bounds
		switch {
		case began:
			r.event(env, c, corev1.EventTypeNormal, "ScaleDownStarted", "member %s: %d replicas, were %d (%s)", c.to.Name, c.to.Replicas, c.from.Replicas, c.to.Reason)
		case ended:
			r.event(env, c, corev1.EventTypeNormal, "ScaleDownCompleted", "member %s has no more pods than it is asked for", c.to.Name)
		case stuck:
			r.event(env, c, corev1.EventTypeWarning, "ScaleDownStuck", "member %s: %s", c.to.Name, surplus(c.from.pool))
		}
	}
}

// drain updates the drain of a pool that is to have that many replicas; steps: their
// number was just lowered.
func (m *memory) drain(pool *v1alpha1.SandboxPool, replicas int32, steps bool, now time.Time) (began, ended, stuck bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.drains[pool.UID]
	switch {
	case d == nil && steps:
		if m.drains == nil {
			m.drains = map[types.UID]*drain{}
		}
		m.drains[pool.UID] = &drain{noticed: now}
		return true, false, false
	case d == nil, steps:
	case pool.Spec.Replicas == replicas && pool.Status.ObservedGeneration == pool.Generation && unclaimed(pool) <= replicas+pool.Status.WaitingClaims:
		delete(m.drains, pool.UID)
		return false, true, false
	case now.Sub(d.noticed) >= stuckAfter:
		d.noticed = now
		return false, false, true
	}
	return false, false, false
}

func unclaimed(pool *v1alpha1.SandboxPool) int32 { return pool.Status.Idle + pool.Status.Warming }

func surplus(pool *v1alpha1.SandboxPool) string {
	return fmt.Sprintf("it has %d unclaimed pods for its %d replicas", unclaimed(pool), pool.Spec.Replicas)
}
