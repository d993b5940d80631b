package sandboxpool

import (
	"math/rand/v2"
	"testing"
)

// fleet is a pool of the simulation below: pods by template and state.
type fleet struct {
	oldIdle, newIdle, warming, oldClaimed, newClaimed int
}

func (f fleet) counts() counts {
	return counts{
		warming: f.warming, idle: f.oldIdle + f.newIdle, outdated: f.oldIdle, running: f.oldClaimed + f.newClaimed,
		proven: f.newIdle + f.newClaimed, total: f.oldIdle + f.newIdle + f.warming + f.oldClaimed + f.newClaimed,
	}
}

// apply does what was decided; deletions are over at once. Surplus goes in the
// order of countPods: warming, old, new.
func (f *fleet) apply(s scaling) {
	f.warming += s.create
	f.oldIdle -= s.replace
	for range s.remove {
		switch {
		case f.warming > 0:
			f.warming--
		case f.oldIdle > 0:
			f.oldIdle--
		default:
			f.newIdle--
		}
	}
}

// TestRolloutNeverEmptiesTheStock plays rollouts over stocks of all sizes, in
// which pods become Ready one by one, and counts what a claim would have found.
func TestRolloutNeverEmptiesTheStock(t *testing.T) {
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		l := limits{replicas: 1 + rnd.IntN(20)}
		f := fleet{oldIdle: l.replicas, oldClaimed: rnd.IntN(3)}
		if rnd.IntN(2) == 0 {
			l.maxPods = max(2, f.oldIdle+f.oldClaimed+rnd.IntN(3))
		}
		broken := rnd.IntN(4) == 0
		least := max(1, l.replicas-maxUnavailable(l.replicas))
		claims := !broken && rnd.IntN(2) == 0
		steps := 0
		for ; steps < 500 && (f.oldIdle > 0 || f.newIdle < l.replicas); steps++ {
			f.apply(decideScale(f.counts(), l))
			c := f.counts()
			if c.available() < least && !claims || c.available() < 1 && f.oldClaimed+f.newClaimed == 0 {
				t.Fatalf("seed %d: a stock of %d has %d left: %+v, %+v", seed, l.replicas, c.available(), f, l)
			}
			if l.maxPods > 0 && c.total > l.maxPods || c.unclaimed() > l.replicas+1 {
				t.Fatalf("seed %d: too many pods: %+v, %+v", seed, f, l)
			}
			if broken {
				if f.warming > 1 {
					t.Fatalf("seed %d: %d pods of a broken template at a time", seed, f.warming)
				}
				continue
			}
			if f.warming > 0 && rnd.IntN(3) > 0 {
				f.warming, f.newIdle = f.warming-1, f.newIdle+1
			}
			if claims && steps < 40 && rnd.IntN(4) == 0 {
				switch {
				case f.oldClaimed+f.newClaimed > 2:
					if f.oldClaimed > 0 {
						f.oldClaimed--
					} else {
						f.newClaimed--
					}
				case f.oldIdle > 1:
					f.oldIdle, f.oldClaimed = f.oldIdle-1, f.oldClaimed+1
				case f.newIdle > 1:
					f.newIdle, f.newClaimed = f.newIdle-1, f.newClaimed+1
				}
			}
		}
		// With room for one unclaimed pod, the old one stays until it is claimed or
		// a claim ends.
		unclaimed := l.maxPods - f.oldClaimed - f.newClaimed
		full := l.maxPods > 0 && unclaimed < max(2, l.replicas)
		if !broken && !full && steps == 500 {
			t.Fatalf("seed %d: the rollout does not end: %+v, %+v", seed, f, l)
		}
		if broken && f.oldIdle < l.replicas-1 {
			t.Fatalf("seed %d: a broken template cost %d pods", seed, l.replicas-f.oldIdle)
		}
	}
}
