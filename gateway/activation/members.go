package activation

import (
	"cmp"
	"errors"
	"slices"

	"github.com/sandlane/sandlane/routing"
)

// candidate is a member with the state of this gateway's scheduler for it.
type candidate struct {
	routing.Member
	stocked bool // the pool has more idle pods than claims that wait for one
}

// sortMembers sorts the members into the order in which a claim tries them, in place, and
// returns them: first the stocked ones, then those where a claim waits. Among each the
// unsaturated ones come first, then it is by priority, then by name.
func sortMembers(all []candidate) []candidate {
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

// errLeftQueue: the request has left the queue of a pool without a claim, to join the queue
// of a better member.
var errLeftQueue = errors.New("another member of the env is to serve")

// claimOfEnv gets a pod for a sandbox of an env. The request waits in the queue of one
// member, and tries the next one when that member is gone. If the member's queue is full, it
// tries only members that have a pod for it: each member whose queue it joined would order
// pods for the same requests. While it has no claim it moves to a member that has a pod for
// it, and from a saturated member to one that is not. It leaves its queue first, takes the
// answer of a claim that has begun meanwhile, and only then joins another queue. So there is
// one claim for an ID at a time.
//
// Once the request has written a binding, which other processes may act on, it reads the
// sandbox before it joins another queue.
func (act *activation) claimOfEnv(b *binder, env string) error {
	tried := map[string]bool{}
	last := retry(routing.ErrNoMember)
	next, joined := act.nextMember(env, tried), func() {}
	for next != "" {
		to, arrived := "", func() {}
		err := act.claimFrom(b, next, joined, func() bool {
			to, arrived = act.betterMember(env, tried, next) // without a better one, arrived does nothing
			return to != ""
		})
		joined()
		moves, closed := errors.Is(err, errLeftQueue), errors.Is(err, routing.ErrPoolNotFound) || errors.Is(err, errQueueFull)
		if moves && !b.tried.Load() {
			next, joined = to, arrived
			continue
		}
		arrived() // the request does not move there: give the pod that is kept for it back
		switch {
		case b.tried.Load() && (moves || errors.Is(err, routing.ErrPoolNotFound)):
			if b.sandbox != nil {
				act.underWay = b.sandbox.UID
			}
			return errReadAgain // the request lost its pod, and its pool has no other
		case b.tried.Load() || !closed:
			return err
		}
		tried[next], last = true, err
		if errors.Is(err, errQueueFull) {
			next, joined = act.stockedMember(env, tried)
		} else {
			next, joined = act.nextMember(env, tried), func() {}
		}
	}
	return last
}

// nextMember returns the member of the env to try next; empty if none is left.
func (act *activation) nextMember(env string, tried map[string]bool) string {
	if all := sortMembers(act.candidates(env, tried)); len(all) > 0 {
		return all[0].Pool
	}
	return ""
}

// betterMember returns the member to which a request that waits at the pool is to move;
// empty if it is to stay. If it moves because that member has an idle pod, one pod is kept
// for it until arrived is called.
func (act *activation) betterMember(env string, tried map[string]bool, pool string) (to string, arrived func()) {
	all := sortMembers(act.candidates(env, tried))
	if !isBetter(all, pool) {
		return "", func() {}
	}
	if first := all[0]; !first.stocked {
		return first.Pool, func() {}
	}
	return act.stockedMember(env, tried)
}

// stockedMember returns a member that has an idle pod for the request; empty if there is none.
// That pod is kept for it until arrived is called.
func (act *activation) stockedMember(env string, tried map[string]bool) (to string, arrived func()) {
	if all := sortMembers(act.candidates(env, tried)); len(all) > 0 && all[0].stocked {
		if s, ok := act.a.o.Schedulers(act.Namespace, all[0].Pool); ok {
			if arrived, ok = s.Expect(); ok { // else other requests were faster
				return all[0].Pool, arrived
			}
		}
	}
	return "", func() {}
}

// isBetter reports whether a request that waits at the pool is to move to the first of the
// sorted members: that one is stocked, or the pool is saturated and that one is not.
func isBetter(ordered []candidate, pool string) bool {
	i := slices.IndexFunc(ordered, func(c candidate) bool { return c.Pool == pool })
	if i <= 0 {
		return i < 0 && len(ordered) > 0 // the pool is no member any more
	}
	first := ordered[0]
	return first.stocked || ordered[i].Saturated && !first.Saturated
}

// rankOf returns the rank of a pool among the members by priority, then by name, from 1; 0
// if the pool is no member any more.
func rankOf(members []routing.Member, pool string) int {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b routing.Member) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Pool, b.Pool))
	})
	return 1 + slices.IndexFunc(members, func(m routing.Member) bool { return m.Pool == pool })
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
