package routecache

import (
	"container/heap"
	"net/netip"
	"sync"
)

// maxLifted is how many lifted refusals are remembered. A resolve that is still
// open when this many were lifted after it began has to start over.
const maxLifted = 4096

// refusals are the addresses that a fence has closed to older routes. They live
// outside the LRU, since they must not be evicted.
//
// A lifted refusal goes on refusing the resolves that began before the lift:
// such a resolve may have read the old pod object long ago. One that begins
// later reads an index, or an API server, that knows of the end.
type refusals struct {
	mu sync.RWMutex
	// closed: every route is refused, until the next podsSeen.
	closed bool
	// seen is how far the own pod watch has come.
	seen uint64
	// lifts counts the lifts; a Token carries its value at Begin.
	lifts uint64
	// forgotten is the lift up to which lifted refusals were forgotten.
	forgotten uint64
	byAddr    map[netip.Addr]refusal
	// inForce orders the refusals that are not lifted by resourceVersion. One
	// that was superseded stays in it and is skipped when its turn comes.
	inForce inForceHeap
	// lifted is the order in which refusals were lifted, superseded ones included.
	lifted []liftedRefusal
}

type refusal struct {
	rv   uint64 // routes of older pod objects are refused
	lift uint64 // the lift that lifted it; 0 = it stands
}

type liftedRefusal struct {
	addr netip.Addr
	lift uint64
}

func (x *refusals) init() { x.byAddr = map[netip.Addr]refusal{} }

// begin returns the number of lifts so far, for a Token.
func (x *refusals) begin() uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.lifts
}

// refuse reports whether a route resolved since t must not be cached.
func (x *refusals) refuse(t Token, r *Route) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.closed || t.lifts < x.forgotten {
		return true
	}
	e, ok := x.byAddr[r.Addr.Unmap()]
	return ok && r.PodRV < e.rv && (e.lift == 0 || e.lift > t.lifts)
}

// add refuses the addresses: until the pod watch has come far enough, or, if it
// has already, to the resolves that have begun.
func (x *refusals) add(fences map[netip.Addr]uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.lifts++
	for addr, rv := range fences {
		e, known := x.byAddr[addr]
		switch {
		case rv <= x.seen && (e.lift != 0 || !known):
			x.lift(addr, max(rv, e.rv))
		case rv > e.rv:
			x.byAddr[addr] = refusal{rv: rv}
			heap.Push(&x.inForce, Fence{Addr: addr, RV: rv})
		}
	}
	x.forget()
}

// podsSeen lifts the refusals that the pod watch has passed.
func (x *refusals) podsSeen(rv uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen = max(x.seen, rv)
	if x.closed {
		x.closed = false
		x.lifts++
		x.forgotten = x.lifts
	}
	if len(x.inForce) == 0 || x.inForce[0].RV > x.seen {
		return
	}
	x.lifts++
	for len(x.inForce) > 0 && x.inForce[0].RV <= x.seen {
		f := heap.Pop(&x.inForce).(Fence)
		if x.byAddr[f.Addr] == (refusal{rv: f.RV}) {
			x.lift(f.Addr, f.RV)
		}
	}
	x.forget()
}

// lift makes the address's refusal one of the current lift. Under mu.
func (x *refusals) lift(addr netip.Addr, rv uint64) {
	x.byAddr[addr] = refusal{rv: rv, lift: x.lifts}
	x.lifted = append(x.lifted, liftedRefusal{addr: addr, lift: x.lifts})
}

// rewind forgets all of it and refuses everything until the next podsSeen, and also
// after it resolves that have begun before: they may have read anything.
func (x *refusals) rewind() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed, x.seen = true, 0
	x.byAddr, x.inForce, x.lifted = map[netip.Addr]refusal{}, nil, nil
}

// forget keeps the lifted refusals few. Under mu.
func (x *refusals) forget() {
	for len(x.lifted) > maxLifted {
		l := x.lifted[0]
		x.lifted = x.lifted[1:]
		x.forgotten = l.lift
		if x.byAddr[l.addr].lift == l.lift {
			delete(x.byAddr, l.addr)
		}
	}
}

// count returns how many addresses are refused to everyone.
func (x *refusals) count() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.byAddr) - x.liftedAddresses()
}

// liftedAddresses counts the refusals in byAddr that are lifted. Under mu.
func (x *refusals) liftedAddresses() int {
	n := 0
	for _, e := range x.byAddr {
		if e.lift != 0 {
			n++
		}
	}
	return n
}

// inForceHeap is a container/heap, lowest resourceVersion first.
type inForceHeap []Fence

func (h inForceHeap) Len() int           { return len(h) }
func (h inForceHeap) Less(i, j int) bool { return h[i].RV < h[j].RV }
func (h inForceHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *inForceHeap) Push(f any)        { *h = append(*h, f.(Fence)) }
func (h *inForceHeap) Pop() any {
	old := *h
	f := old[len(old)-1]
	*h = old[:len(old)-1]
	return f
}
