package idletimeout

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// retainEvery is the time between two calls of Memory.Retain.
const retainEvery = time.Minute

// tracked is a claim that has not ended, as its Sandbox was last seen.
type tracked struct {
	key     claimKey
	sandbox *v1alpha1.Sandbox // the cache's; never changed
	index   int               // in claims.all
	running bool

	// seen is when the claim was first seen running, zero before.
	seen time.Time
	// first: it is seen running since this process first looked, which it may have done for
	// longer.
	first bool
	// judge is when the claim is to be judged next: before that it cannot have been idle
	// for its timeout, whatever gateways report of it.
	judge time.Time
	// starts is since when the claim has been seen to start; zero if it does not.
	starts time.Time
	// saved is the lastActive last written, and save when it may be written anew.
	saved, save time.Time
}

// claims has all claims that have not ended, and the Sandboxes that have a token of an idle
// release, as the watch showed them until the last check. One goroutine uses it.
type claims struct {
	byID map[string]*tracked
	all  []*tracked // in no order
	// starting are the claims whose Sandbox is in the phase Starting.
	starting map[*tracked]struct{}
	// releasing are the Sandboxes that have a token and no end.
	releasing map[string]*v1alpha1.Sandbox
	// news are the claims to note as running (Memory.SeenRunning).
	news []*tracked
	// pools are those of the claims.
	pools map[types.NamespacedName]*pooled
}

// pooled is what is known of the pool of some claims.
type pooled struct {
	claims int
	// idle is the timeout of its sandboxes that have none of their own, as of the
	// last check.
	idle time.Duration
}

func newClaims() claims {
	return claims{
		byID: map[string]*tracked{}, starting: map[*tracked]struct{}{}, releasing: map[string]*v1alpha1.Sandbox{},
		pools: map[types.NamespacedName]*pooled{},
	}
}

// takeChanges takes in the Sandboxes that have changed since the last check.
func (r *IdleTimeoutReconciler) takeChanges() {
	now := r.Clock.Now()
	for name, s := range r.feed.Changed() {
		r.claims.take(name, s, now)
		if t := r.claims.byID[name]; t != nil && !r.looked && t.running {
			t.first = v1alpha1.Awake(s)
		}
	}
	r.looked = true
}

// take takes in one Sandbox; nil is one that is gone.
func (c *claims) take(name string, s *v1alpha1.Sandbox, now time.Time) {
	ended := s == nil || s.Spec.End != nil
	if ended || s.Spec.Release == nil {
		delete(c.releasing, name)
	} else {
		c.releasing[name] = s
	}
	t := c.byID[name]
	if t != nil && (ended || s.Spec.Binding == nil || t.key != keyOf(s)) {
		c.remove(t)
		t = nil
	}
	if ended || s.Spec.Binding == nil {
		return
	}
	if t == nil {
		t = &tracked{key: keyOf(s), index: len(c.all)}
		c.byID[name], c.all = t, append(c.all, t)
		pool := c.pools[poolOf(s)]
		if pool == nil {
			pool = &pooled{}
			c.pools[poolOf(s)] = pool
		}
		pool.claims++
	}
	resumed := t.sandbox != nil && t.sandbox.Spec.PauseOrder != s.Spec.PauseOrder
	// The status may be older than a resume that is to restore its files.
	t.sandbox, t.running = s, s.Status.Phase == v1alpha1.SandboxRunning && !s.Spec.Paused && s.Spec.Restore == nil
	if v1alpha1.EverPaused(s) && !t.running || resumed {
		t.seen, t.first = time.Time{}, false // idle time counts anew from when it runs again
	}
	t.judge = time.Time{} // its timeout may be another
	if t.running && t.seen.IsZero() {
		t.seen = now
		c.news = append(c.news, t)
	}
	if s.Status.Phase == v1alpha1.SandboxStarting {
		c.starting[t] = struct{}{}
	} else {
		delete(c.starting, t)
		t.starts = time.Time{}
	}
}

func (c *claims) remove(t *tracked) {
	last := c.all[len(c.all)-1]
	c.all[t.index], last.index = last, t.index
	c.all[len(c.all)-1] = nil
	c.all = c.all[:len(c.all)-1]
	delete(c.byID, t.key.id)
	delete(c.starting, t)
	if pool := poolOf(t.sandbox); c.pools[pool].claims > 1 {
		c.pools[pool].claims--
	} else {
		delete(c.pools, pool)
	}
}

// live reports whether the claim has not ended. The claim "" stands for use of the
// ID before its claim was known.
func (c *claims) live(id, claim string) bool {
	t := c.byID[id]
	return t != nil && (claim == "" || claim == t.key.claim)
}

// inherit takes over, at the first look, since when the leader before this one has seen the
// claims run, if they have not been paused since; and notes what is new for the next one.
func (r *IdleTimeoutReconciler) inherit() {
	m, ok := r.source.(Memory)
	if !ok {
		return
	}
	if !r.inherited {
		r.inherited = true
		for _, t := range r.claims.all {
			at, order, ok := m.RunningSince(t.key.id, t.key.claim)
			if t.first && ok && at.Before(t.seen) && order == t.sandbox.Spec.PauseOrder {
				t.seen = at
			}
		}
	}
	for _, t := range r.claims.news {
		if r.claims.byID[t.key.id] == t && t.running {
			m.SeenRunning(t.key.id, t.key.claim, t.seen, t.sandbox.Spec.PauseOrder)
		}
	}
	r.claims.news = nil
}

// retain calls Memory.Retain once per retainEvery.
func (r *IdleTimeoutReconciler) retain() {
	m, ok := r.source.(Memory)
	if now := r.Clock.Now(); ok && (r.retained.IsZero() || now.Sub(r.retained) >= retainEvery) {
		r.retained = now
		m.Retain(r.claims.live)
	}
}

// lookAtPools makes the claims of each pool whose timeout has changed be judged anew.
func (r *IdleTimeoutReconciler) lookAtPools(ctx context.Context, timeouts *timeouts) error {
	moved := map[types.NamespacedName]bool{}
	for key, pool := range r.claims.pools {
		_, idle, err := timeouts.ofPool(ctx, key)
		if err != nil {
			return err
		}
		if idle != pool.idle {
			pool.idle, moved[key] = idle, true
		}
	}
	if len(moved) == 0 {
		return nil
	}
	for _, t := range r.claims.all {
		if moved[poolOf(t.sandbox)] {
			t.judge = time.Time{}
		}
	}
	return nil
}

func poolOf(s *v1alpha1.Sandbox) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Spec.Namespace, Name: s.Spec.Pool}
}

func keyOf(s *v1alpha1.Sandbox) claimKey { return claimKey{s.Name, s.Spec.Binding.ClaimID} }
