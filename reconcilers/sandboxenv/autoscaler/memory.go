package autoscaler

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// memory holds what this process has written lately, which the caches may not show yet,
// and the drains that it has begun. A new leader begins without it.
// It is safe for concurrent use.
type memory struct {
	mu sync.Mutex
	// states are the last bookkeeping written, drains those in progress, by pool;
	// pools are the members of each env that was looked at. All guarded by mu.
	states map[types.UID]State
	drains map[types.UID]*drain
	pools  map[types.NamespacedName]map[string]types.UID
}

// keep notes what was written for a pool.
func (m *memory) keep(pool types.UID, st State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.states == nil {
		m.states = map[types.UID]State{}
	}
	m.states[pool] = st
}

// latest returns the bookkeeping that was read, but the steps and the last attempt that this
// process wrote where those are later: no step is forgotten because the cache is behind.
func (m *memory) latest(pool types.UID, st State) State {
	m.mu.Lock()
	mine, ok := m.states[pool]
	m.mu.Unlock()
	if !ok {
		return st
	}
	st.LastUp, st.LastDown = later(st.LastUp, mine.LastUp), later(st.LastDown, mine.LastDown)
	if mine.LastAttempt.After(st.LastAttempt) {
		st.LastAttempt, st.Result, st.Message, st.SaturatedUntil = mine.LastAttempt, mine.Result, mine.Message, mine.SaturatedUntil
	}
	return st
}

// members notes an env's members and returns the names of those that it has no more,
// whose memory goes.
func (m *memory) members(env types.NamespacedName, now map[string]types.UID) (gone []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, uid := range m.pools[env] {
		if now[name] == uid {
			continue
		}
		delete(m.states, uid)
		delete(m.drains, uid)
		if now[name] == "" {
			gone = append(gone, name)
		}
	}
	if m.pools == nil {
		m.pools = map[types.NamespacedName]map[string]types.UID{}
	}
	if m.pools[env] = now; len(now) == 0 {
		delete(m.pools, env)
	}
	return gone
}

// stateOf and autoScalingOf translate between bookkeeping and status.
func stateOf(a *v1alpha1.PoolAutoScaling) State {
	if a == nil {
		return State{}
	}
	at := func(t *metav1.Time) time.Time {
		if t == nil {
			return time.Time{}
		}
		return t.Time
	}
	return State{
		IdleZeroSince: at(a.IdleZeroSince), LastUp: at(a.LastScaleUpTime), LastAttempt: at(a.LastScaleUpAttemptTime),
		LastDown: at(a.LastScaleDownTime), SaturatedUntil: at(a.SaturatedUntil), Result: a.LastScaleUpAttemptResult, Message: a.Message,
	}
}

// autoScalingOf is nil for a zero State.
func autoScalingOf(st State) *v1alpha1.PoolAutoScaling {
	if st == (State{}) {
		return nil
	}
	at := func(t time.Time) *metav1.Time {
		if t.IsZero() {
			return nil
		}
		return &metav1.Time{Time: t}
	}
	return &v1alpha1.PoolAutoScaling{
		IdleZeroSince: at(st.IdleZeroSince), LastScaleUpTime: at(st.LastUp), LastScaleUpAttemptTime: at(st.LastAttempt),
		LastScaleDownTime: at(st.LastDown), SaturatedUntil: at(st.SaturatedUntil), LastScaleUpAttemptResult: st.Result, Message: st.Message,
	}
}
