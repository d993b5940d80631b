package faults

import (
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"
)

// Fault is what happens to one write.
type Fault int

// The faults, in the order of the package comment.
const (
	None Fault = iota
	RefusedBefore
	ResetBefore
	Error500Before
	Error503Before
	ThrottledBefore // 429 with Retry-After
	TimeoutBefore
	ResetAfter
	Error500After
	Error503After // with Retry-After: client-go itself sends the write again
	TimeoutAfter
	LateAtNext
	LateAfterNext
	LateAfterTwo
	Slow
	count
)

var names = [count]string{
	"none", "before: connection refused", "before: reset", "before: 500", "before: 503", "before: 429, Retry-After",
	"before: timeout", "after: reset", "after: 500", "after: 503, Retry-After", "after: timeout",
	"late: at the next", "late: after the next", "late: after two", "slow",
}

func (f Fault) String() string { return names[f] }

// All returns every fault but None.
func All() []Fault {
	var all []Fault
	for f := None + 1; f < count; f++ {
		all = append(all, f)
	}
	return all
}

// Sent reports whether the server gets the write.
func (f Fault) Sent() bool { return f == None || f >= ResetAfter }

// overtakes is how many calls about the object overtake a late write; -1: it is
// not late.
func (f Fault) overtakes() int {
	if f < LateAtNext || f > LateAfterTwo {
		return -1
	}
	return int(f - LateAtNext)
}

// Decision is what a plan says about one write.
type Decision struct {
	Fault Fault
	Hold  time.Duration
}

// Plan decides on a write. It is called from several goroutines.
type Plan func(Write) Decision

// Random strikes writes of each kind with the given chance, with every fault
// alike, and holds every other one for hold.
func Random(seed uint64, chance map[Kind]float64, hold time.Duration) Plan {
	return func(w Write) Decision {
		h := fnv.New64a()
		h.Write([]byte(string(w.Kind) + " " + w.Sandbox + " " + strconv.Itoa(w.Nth)))
		rnd := rand.New(rand.NewPCG(seed, h.Sum64()))
		if rnd.Float64() >= chance[w.Kind] {
			return Decision{}
		}
		d := Decision{Fault: 1 + Fault(rnd.IntN(int(count)-1))}
		if d.Fault == Slow || rnd.IntN(2) == 0 {
			d.Hold = hold
		}
		return d
	}
}
