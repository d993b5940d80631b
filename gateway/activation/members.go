package activation

import (
	"cmp"
	"errors"
	"slices"
)

// Member is a pool of an env as claims see it.
type Member struct {
	Pool string
	// Priority orders members that have idle pods, ScaleUpPriority those where a claim
	// would wait; the lower number first.
	Priority, ScaleUpPriority int32
	// Saturated: it could not grow lately, or has all pods that it may have. It is tried
	// last.
	Saturated bool
}

// candidate is a member with the state of this gateway's scheduler for it. stocked: it has
// more idle pods than claims that wait.
type candidate struct {
	Member
	stocked bool
}

// order puts the members in the order in which a claim tries them: first those that can
// serve it at once, then those where it waits least; of each the unsaturated ones
// first, then by priority, then by name. It is pure, and changes what it is given.
func order(all []candidate) []candidate {
	last := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	slices.SortFunc(all, func(a, b candidate) int {
		priority := cmp.Compare(a.Priority, b.Priority)
		if !a.stocked && !b.stocked {
			priority = cmp.Or(cmp.Compare(a.ScaleUpPriority, b.ScaleUpPriority), priority)
		}
		return cmp.Or(last(!a.stocked)-last(!b.stocked), last(a.Saturated)-last(b.Saturated), priority, cmp.Compare(a.Pool, b.Pool))
	})
	return all
}

// errElsewhere: the request has left its queue without a claim, to join that of a better
// member.
var errElsewhere = errors.New("another member of the env is to serve")

// claimOfEnv gets a pod for a sandbox of an env: it stands in the queue of one member,
// and tries the next when that one is gone or takes no more. A request moves, to a
// member that has a pod for it, and from a saturated one to one that is not, while it
// has no claim: it leaves its queue first, takes the answer of a claim that has begun
// meanwhile, and only then joins another. So there is one claim for an ID at a time.
//
// Once a binding was written, which others may act on, the sandbox is looked at before
// it joins another queue.
func (act *activation) claimOfEnv(b *binder, env string) error {
	tried := map[string]bool{}
	last := ErrPoolNotFound
	next, joined := act.nextMember(env, tried), func() {}
	for next != "" {
		to, arrived := "", func() {}
		err := act.claimFrom(b, next, joined, func() bool {
			to, arrived = act.better(env, tried, next)
			return to != ""
		})
		joined()
		moves, closed := errors.Is(err, errElsewhere), errors.Is(err, ErrPoolNotFound) || errors.Is(err, errQueueFull)
		if moves && !b.tried {
			next, joined = to, arrived
			continue
		}
		arrived() // it does not go there
		switch {
		case b.tried && (moves || errors.Is(err, ErrPoolNotFound)):
			if b.sandbox != nil {
				act.underWay = b.sandbox.UID
			}
			return errReadAgain // it had a pod and lost it, and its pool has no other
		case b.tried || !closed:
			return err
		}
		tried[next], last = true, err
		next, joined = act.nextMember(env, tried), func() {}
	}
	return last
}

// nextMember is the member of the env to try next; empty if none is left.
func (act *activation) nextMember(env string, tried map[string]bool) string {
	if all := order(act.candidates(env, tried)); len(all) > 0 {
		return all[0].Pool
	}
	return ""
}

// better is the member that a request which waits at the pool is to move to; empty if it
// is to stay. Where it moves for a pod, that one is kept for it until arrived is called.
func (act *activation) better(env string, tried map[string]bool, pool string) (to string, arrived func()) {
	none := func() {}
	all := order(act.candidates(env, tried))
	if !isBetter(all, pool) {
		return "", none
	}
	if first := all[0]; !first.stocked {
		return first.Pool, none
	}
	s, ok := act.a.o.Schedulers(act.Namespace, all[0].Pool)
	if !ok {
		return "", none
	}
	if arrived, ok = s.Expect(); !ok {
		return "", none // other requests were faster
	}
	return all[0].Pool, arrived
}

// isBetter reports whether the first of the members in their order is worth leaving the
// queue of the pool for: it can serve one more claim at once, or the pool is saturated
// and it is not. Where neither holds a request keeps its place.
func isBetter(ordered []candidate, pool string) bool {
	i := slices.IndexFunc(ordered, func(c candidate) bool { return c.Pool == pool })
	if i <= 0 {
		return i < 0 && len(ordered) > 0 // the pool is no member any more
	}
	first := ordered[0]
	return first.stocked || ordered[i].Saturated && !first.Saturated
}

// rankOf is the place of a pool among the members by priority, then by name, from 1; 0 if
// it is none of them any more.
func rankOf(members []Member, pool string) int {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Pool, b.Pool)) })
	return 1 + slices.IndexFunc(members, func(m Member) bool { return m.Pool == pool })
}

func (act *activation) candidates(env string, tried map[string]bool) []candidate {
	var all []candidate
	for _, m := range act.a.o.Members(act.Namespace, env) {
		if tried[m.Pool] {
			continue
		}
		if s, ok := act.a.o.Schedulers(act.Namespace, m.Pool); ok {
			all = append(all, candidate{m, s.Spare()})
		}
	}
	return all
}
