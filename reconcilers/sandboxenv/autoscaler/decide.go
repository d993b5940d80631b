package autoscaler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// The buffer:
//
// D is the demand of a member: claimed pods and claims that wait. While its pool is in
// demand, which means that a claim waits or a create came within the quiet window, the
// buffer wanted is 1 (Conservative), a quarter of D (Default) or half of D (Aggressive),
// at least 1. Out of demand it is nothing.
//
//	decision     when
//	bounds       replicas lie outside the member's or the group's bounds: at once
//	up           the buffer wanted is larger than the replicas, outside the cooldowns
//	proactive    in demand, without an idle pod for the idle threshold, and a create came
//	             after the last step up: twice the replicas, up to D+1 (Conservative),
//	             3D/2+1 (Default) or 2D+2 (Aggressive) pods in all
//	down         no claim waits in the group, all gateways have answered, some pods have
//	             been idle for longer than the idle timeout: 1, a quarter or half of the
//	             replicas, no more than those pods, and not below the buffer wanted
//
// A step up at most doubles the replicas. A member yields to one of its group with a
// smaller scaleUpPriority that wants to grow too and can.

// Why it neither oscillates nor compounds:
//
// A step down stops at the buffer at which a step up begins, by the same demand. A
// buffer depends on the demand alone, never on what was ordered before, but for the
// proactive step, which a create after the last step has to justify and whose sum is
// bounded by the demand.

// Decide sizes the members of a group. It is pure and total: any snapshot, also a
// senseless one, gives a decision that keeps the bounds. Where the members' minima
// exceed the group's maximum the maximum counts.
func Decide(s Snapshot) Decision {
	g := group{s: s, next: make([]MemberDecision, len(s.Members))}
	for _, m := range s.Members {
		g.total += m.Replicas
	}
	for i, m := range s.Members {
		g.next[i] = MemberDecision{Name: m.Name, Replicas: m.Replicas, State: bookkeep(m, s.Now, s.Policy.SaturationCooldown)}
	}
	if s.Enabled {
		g.bound()
		g.up()
		g.down()
	}
	for i := range g.next {
		if d := &g.next[i]; d.Replicas == s.Members[i].Replicas {
			d.Reason = "" // a bound undid what another asked for
		}
	}
	return Decision{Members: g.next}
}

// bookkeep notes since when no pod is idle. It brings times that lie ahead, of a
// clock that was set back or of another controller's, to now, and the end of a
// saturation to what its cooldown allows.
func bookkeep(m Member, now time.Time, saturation time.Duration) State {
	st := m.State
	for _, t := range []*time.Time{&st.IdleZeroSince, &st.LastUp, &st.LastAttempt, &st.LastDown} {
		if t.After(now) {
			*t = now
		}
	}
	if most := now.Add(saturation); st.SaturatedUntil.After(most) {
		st.SaturatedUntil = most
	}
	switch {
	case m.Idle > 0:
		st.IdleZeroSince = time.Time{}
	case st.IdleZeroSince.IsZero():
		st.IdleZeroSince = now
	}
	return st
}

// group is a decision in the making.
type group struct {
	s    Snapshot
	next []MemberDecision
	// total is the sum of next's replicas: set keeps it.
	total int
}

func (g *group) sum() int { return g.total }

// set changes a member's replicas.
func (g *group) set(i, replicas int, reason Reason) {
	if replicas != g.next[i].Replicas {
		g.total += replicas - g.next[i].Replicas
		g.next[i].Replicas, g.next[i].Reason = replicas, reason
	}
}

// order returns the members' indexes, the lower priority first, then by name.
func (g *group) order(priority func(Member) int) []int {
	all := make([]int, len(g.s.Members))
	for i := range all {
		all[i] = i
	}
	slices.SortFunc(all, func(a, b int) int {
		x, y := g.s.Members[a], g.s.Members[b]
		return cmp.Or(cmp.Compare(priority(x), priority(y)), cmp.Compare(x.Name, y.Name))
	})
	return all
}

func upPriority(m Member) int   { return m.UpPriority }
func downPriority(m Member) int { return m.DownPriority }

// most is the most replicas that a member may have by its own bound.
func (m Member) most() int {
	if m.Max < 0 {
		return maxReplicas
	}
	return min(m.Max, maxReplicas)
}

// maxReplicas is the most that the API takes.
const maxReplicas = 10000

// bound brings members and group within their bounds, whatever the cooldowns say.
func (g *group) bound() {
	for i, m := range g.s.Members {
		g.set(i, min(max(g.next[i].Replicas, m.Min, 0), m.most()), ReasonBounds)
	}
	for _, i := range g.order(upPriority) {
		if missing := g.s.Min - g.sum(); missing > 0 {
			g.set(i, min(g.next[i].Replicas+missing, g.s.Members[i].most()), ReasonBounds)
		}
	}
	if g.s.Max < 0 {
		return
	}
	// First down to the members' minima, then below them: the group's maximum counts.
	for _, least := range []func(Member) int{func(m Member) int { return m.Min }, func(Member) int { return 0 }} {
		for _, i := range g.order(downPriority) {
			if excess := g.sum() - g.s.Max; excess > 0 {
				g.set(i, max(g.next[i].Replicas-excess, min(least(g.s.Members[i]), g.next[i].Replicas), 0), ReasonBounds)
			}
		}
	}
}

// inDemand reports whether the member is to have a buffer.
func (g *group) inDemand(m Member) bool {
	window := g.s.Policy.QuietWindow
	return m.Waiting > 0 || window == 0 || !m.LastCreate.IsZero() && g.s.Now.Sub(m.LastCreate) < window
}

// buffer is the number of idle pods wanted for the demand.
func (g *group) buffer(m Member) int {
	if !g.inDemand(m) {
		return 0
	}
	switch d := m.demand(); g.s.Policy.Mode {
	case v1alpha1.ScaleUpConservative:
		return 1
	case v1alpha1.ScaleUpAggressive:
		return max(1, share(d, 2))
	default:
		return max(1, share(d, 4))
	}
}

// demand counts the pods that are in use or would be.
func (m Member) demand() int { return max(m.Claimed, 0) + max(m.Waiting, 0) }

// share is a part of n, rounded up.
func share(n, of int) int { return (n + of - 1) / of }

// ceiling is the most replicas that the demand justifies, proactive steps included.
func (g *group) ceiling(m Member) int {
	switch d := m.demand(); g.s.Policy.Mode {
	case v1alpha1.ScaleUpConservative:
		return 1
	case v1alpha1.ScaleUpAggressive:
		return d + 2
	default:
		return share(d, 2) + 1
	}
}

// wants returns how many replicas a member would grow to by its demand alone, and why; 0
// if it would not grow. The larger number of both reasons counts: if the first that
// applies counted, one more waiting claim could lead to fewer replicas.
func (g *group) wants(i int) (want int, why Reason) {
	m, st, now := g.s.Members[i], g.next[i].State, g.next[i].Replicas
	if b := g.buffer(m); b > now {
		want, why = b, ReasonDemand
	}
	p := g.s.Policy
	idleZero := !st.IdleZeroSince.IsZero() && g.s.Now.Sub(later(st.IdleZeroSince, st.LastUp)) >= p.IdleThreshold
	if p.IdleThreshold > 0 && idleZero && g.inDemand(m) && m.LastCreate.After(st.LastUp) {
		if target := min(max(2*now, now+1), g.ceiling(m)); target > max(now, want) {
			want, why = target, ReasonProactive
		}
	}
	return want, why
}

// up lets those members grow that want to and may.
func (g *group) up() {
	yields, toWhom := false, 0
	for _, i := range g.order(upPriority) {
		m, d := g.s.Members[i], &g.next[i]
		want, reason := g.wants(i)
		if want == 0 {
			missing := m.Waiting > 0 || m.Idle < d.Replicas
			if m.Short != "" && missing && !d.State.SaturatedUntil.After(g.s.Now) {
				g.saturate(i, m.Short) // what is ordered is enough, and does not come
			}
			continue
		}
		if yields && m.UpPriority > toWhom {
			continue // one of the group that comes first grows now
		}
		if d.State.SaturatedUntil.After(g.s.Now) || d.Replicas >= m.most() {
			continue // lets the others go first
		}
		yields, toWhom = true, m.UpPriority
		if !g.cooledDown(d.State) {
			continue
		}
		g.grow(i, want, reason)
	}
}

// cooledDown reports whether the cooldowns of the last step and the last attempt are over.
func (g *group) cooledDown(st State) bool {
	p := g.s.Policy
	if !st.LastUp.IsZero() && g.s.Now.Sub(st.LastUp) < p.Cooldown {
		return false
	}
	tried := st.Result != "" && st.Result != v1alpha1.ScaleUpEnough && !st.LastAttempt.IsZero()
	return !tried || g.s.Now.Sub(st.LastAttempt) >= p.SaturationCooldown
}

// grow takes a member one step towards what it wants, and notes how that went.
func (g *group) grow(i, want int, reason Reason) {
	m, d := g.s.Members[i], &g.next[i]
	room := m.most()
	if g.s.Max >= 0 {
		room = min(room, d.Replicas+max(g.s.Max-g.sum(), 0))
	}
	step := min(want, max(2*d.Replicas, 1))
	got := min(step, room)
	st := &d.State
	switch {
	case m.Short != "":
		g.saturate(i, m.Short)
		return // what was ordered before is not there yet
	case got < step:
		g.saturate(i, fmt.Sprintf("%d replicas wanted, and the bounds allow %d", step, room))
	case got == room:
		st.LastAttempt, st.Result, st.Message = g.s.Now, v1alpha1.ScaleUpJustRight, ""
	default:
		st.LastAttempt, st.Result, st.Message, st.SaturatedUntil = g.s.Now, v1alpha1.ScaleUpEnough, "", time.Time{}
	}
	if got > d.Replicas {
		g.set(i, got, reason)
		st.LastUp = g.s.Now
	}
}

// saturate notes that a member cannot have the replicas that it needs.
func (g *group) saturate(i int, message string) {
	st := &g.next[i].State
	st.LastAttempt, st.Result, st.Message = g.s.Now, v1alpha1.ScaleUpInsufficient, message
	st.SaturatedUntil = g.s.Now.Add(g.s.Policy.SaturationCooldown)
}

// down lets those members shrink whose pods have been idle for long.
func (g *group) down() {
	if !g.s.Known {
		return
	}
	for _, m := range g.s.Members {
		if m.Waiting > 0 {
			return
		}
	}
	for _, i := range g.order(downPriority) {
		m, d := g.s.Members[i], &g.next[i]
		last := later(d.State.LastDown, d.State.LastUp)
		if d.Reason != "" || !last.IsZero() && g.s.Now.Sub(last) < g.s.Policy.Stabilization {
			continue
		}
		least := max(m.Min, g.buffer(m), 0)
		spare := min(step(g.s.Policy.Mode, d.Replicas), m.LongIdle, d.Replicas-least, g.sum()-g.s.Min)
		if spare > 0 {
			g.set(i, d.Replicas-spare, ReasonIdle)
			d.State.LastDown = g.s.Now
		}
	}
}

// step is how many replicas a step down takes.
func step(mode v1alpha1.ScaleUpMode, replicas int) int {
	switch mode {
	case v1alpha1.ScaleUpConservative:
		return 1
	case v1alpha1.ScaleUpAggressive:
		return share(replicas, 2)
	default:
		return share(replicas, 4)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
