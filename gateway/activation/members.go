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

// candidate is a member with what this gateway's scheduler of it knows. stocked: it has
// a pod for one more claim than wait there.
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

// errElsewhere: the request has left its queue, without a claim, for a member that is
// better.
var errElsewhere = errors.New("another member of the env is to serve")

// claimOfEnv gets a pod for a sandbox of an env: it stands in the queue of one member,
// and tries the next when that one is gone or takes no more. A request moves, to a
// member that has a pod for it, and from a saturated one to one that is not, while it
// has no claim: it leaves its queue first, takes the answer of a claim that has begun
// meanwhile, and only then joins another. So there is one claim for an ID at a time.
func (f *flight) claimOfEnv(b *binder, env string) error {
	tried := map[string]bool{}
	last := ErrPoolNotFound
	for {
		next := f.nextMember(env, tried)
		if next == "" {
			return last
		}
		err := f.claimFrom(b, next, func() bool { return isBetter(order(f.candidates(env, tried)), next) })
		switch {
		case b.tried && errors.Is(err, errElsewhere):
			return errLook // it had a pod and lost it, just as it left
		case b.tried:
			return err // the binding that was written may be claimed by others
		case errors.Is(err, errElsewhere):
			continue
		case errors.Is(err, ErrPoolNotFound), errors.Is(err, errQueueFull):
			tried[next], last = true, err
			continue
		}
		return err
	}
}

// nextMember is the member of the env to try next; empty if none is left.
func (f *flight) nextMember(env string, tried map[string]bool) string {
	if all := order(f.candidates(env, tried)); len(all) > 0 {
		return all[0].Pool
	}
	return ""
}

// isBetter reports whether the first of the members in their order is worth leaving the
// queue of the pool for: it can serve one more claim at once, or the pool is saturated
// and it is not. Where neither holds a request keeps its place.
func isBetter(ordered []candidate, pool string) bool {
	i := slices.IndexFunc(ordered, func(c candidate) bool { return c.Pool == pool })
	if i <= 0 {
		return i < 0 && len(ordered) > 0 // it is no member any more
	}
	first := ordered[0]
	return first.stocked || ordered[i].Saturated && !first.Saturated
}

func (f *flight) candidates(env string, tried map[string]bool) []candidate {
	var all []candidate
	for _, m := range f.a.o.Members(f.Namespace, env) {
		if tried[m.Pool] {
			continue
		}
		if s, ok := f.a.o.Schedulers(f.Namespace, m.Pool); ok {
			all = append(all, candidate{m, s.Spare()})
		}
	}
	return all
}
