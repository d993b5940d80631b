package idletimeout

import (
	"context"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// sight returns the running sandboxes, notes when each claim was first seen, and
// forgets those that are over, also in the source.
func (r *IdleTimeoutReconciler) sight(all []v1alpha1.Sandbox) []*v1alpha1.Sandbox {
	now := r.Clock.Now()
	running := make([]*v1alpha1.Sandbox, 0, len(all))
	live := make(map[claimKey]struct{}, len(all))
	for i := range all {
		s := &all[i]
		if s.Spec.End != nil || s.Spec.Binding == nil {
			continue
		}
		key := keyOf(s)
		live[key] = struct{}{}
		if s.Status.Phase != v1alpha1.SandboxRunning {
			continue
		}
		if _, ok := r.seen[key]; !ok {
			r.seen[key] = now
		}
		running = append(running, s)
	}
	for key := range r.seen {
		if _, ok := live[key]; !ok {
			delete(r.seen, key)
			r.saving.forget(key)
		}
	}
	if m, ok := r.source.(Memory); ok {
		m.Retain(func(id, claim string) bool {
			_, ok := live[claimKey{id, claim}]
			return ok
		})
	}
	return running
}

func keyOf(s *v1alpha1.Sandbox) claimKey { return claimKey{s.Name, s.Spec.Binding.ClaimID} }

// pick returns those that are idle for at least their timeout.
func (r *IdleTimeoutReconciler) pick(ctx context.Context, from []*v1alpha1.Sandbox, used map[string]time.Time, timeouts *timeouts) ([]*v1alpha1.Sandbox, error) {
	var floor time.Time
	if m, ok := r.source.(Memory); ok {
		floor = m.Floor()
	}
	now := r.Clock.Now()
	var picked []*v1alpha1.Sandbox
	for _, s := range from {
		_, timeout, err := timeouts.of(ctx, s)
		if err != nil {
			return nil, err
		}
		if idle(now, timeout, r.seen[keyOf(s)], used[s.Name], floor) {
			picked = append(picked, s)
		}
	}
	return picked, nil
}

// idle is the decision: the timeout (0 or less: never) has passed since the
// latest of the times, of which zero ones do not count. A claim that was never
// sighted is not idle. It is pure.
func idle(now time.Time, timeout time.Duration, sighted, used, floor time.Time) bool {
	if timeout <= 0 || sighted.IsZero() {
		return false
	}
	since := sighted
	for _, t := range []time.Time{used, floor} {
		if t.After(since) {
			since = t
		}
	}
	return now.Sub(since) >= timeout
}
