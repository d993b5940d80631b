package idletimeout

import (
	"context"
	"time"
)

// never is later than any time that is compared with it.
const never = 100 * 365 * 24 * time.Hour

// pick returns the claims that are idle for at least their timeout, and notes for each
// other when it is to be judged again. That time holds until the Sandbox or its pool's
// timeout changes: a report of use only puts it off.
func (r *IdleTimeoutReconciler) pick(ctx context.Context, from []*tracked, timeouts *timeouts) ([]*tracked, error) {
	var floor time.Time
	if m, ok := r.source.(Memory); ok {
		floor = m.Floor()
	}
	now := r.Clock.Now()
	var picked []*tracked
	for _, t := range from {
		if !t.running || t.judge.After(now) {
			continue
		}
		_, timeout, err := timeouts.of(ctx, t.sandbox)
		if err != nil {
			return nil, err
		}
		used, ok := r.source.LastActive(t.key.id, t.key.claim)
		if !ok {
			used = time.Time{}
		}
		at, ok := idleAt(timeout, t.seen, used, floor)
		if ok && !now.Before(at) {
			picked = append(picked, t)
			continue
		}
		if t.judge = at; !ok {
			t.judge = now.Add(never)
		}
	}
	return picked, nil
}

// idleAt is the decision: the claim is idle when the timeout (0 or less: never)
// has passed since the latest of the times, of which zero ones do not count. A
// claim that was never sighted is not idle. Later reports of use, and a later floor, can
// only put that off. It is pure.
func idleAt(timeout time.Duration, sighted, used, floor time.Time) (time.Time, bool) {
	if timeout <= 0 || sighted.IsZero() {
		return time.Time{}, false
	}
	since := sighted
	for _, t := range []time.Time{used, floor} {
		if t.After(since) {
			since = t
		}
	}
	return since.Add(timeout), true
}
