package claims

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/sandlane/sandlane/egress/names"
	"github.com/sandlane/sandlane/routecache"
)

// barrierTimeout bounds one try of a barrier; the pod's next event begins another.
const barrierTimeout = 5 * time.Second

// Claim is what a connection is served for. It is immutable.
type Claim struct {
	Namespace, SandboxID, ClaimID string
	Policy                        *names.Policy
}

// Pod is what a pod's object says.
type Pod struct {
	UID  string
	Addr netip.Addr
	// RV is the object's resourceVersion.
	RV uint64
	// Claim is nil while the pod has none.
	Claim *Claim
}

// Options configure a Table. All are required.
type Options struct {
	// Held reports whether this process holds its lease.
	Held func() bool
	// Barrier returns nil once every connection has been accepted that this process's
	// listeners held when it was called.
	Barrier func(context.Context) error
	Log     *slog.Logger
}

// Table knows the claims of addresses. It is safe for concurrent use; See, Gone and
// PodsSeen are called in the order of the pod watch.
type Table struct {
	o Options

	mu sync.Mutex
	// addrs has the era of each address that is not unknown, byPod the address of each pod.
	addrs map[netip.Addr]*era
	byPod map[string]netip.Addr
	// leaving are the eras that are over and have connections that are still served.
	leaving map[netip.Addr]map[*era]struct{}
	// fences has the newest fence of an address, until the pod watch has passed it.
	fences map[netip.Addr]uint64
}

// era is the time in which an address is one pod's, and at most one claim's. Guarded by
// Table.mu but for the channels.
type era struct {
	addr netip.Addr
	pod  string
	rv   uint64
	// passed: the barrier has; a connection that is accepted now belongs to this era.
	passed, passing bool
	claim           *Claim
	claimed         chan struct{} // closed once there is a claim
	over            chan struct{} // closed at the end
	drained         chan struct{} // closed once it is over and nothing is served
	uses            map[*Use]struct{}
}

// NewTable returns a table in which every address is unknown.
func NewTable(o Options) *Table {
	return &Table{
		o: o, addrs: map[netip.Addr]*era{}, byPod: map[string]netip.Addr{},
		leaving: map[netip.Addr]map[*era]struct{}{}, fences: map[netip.Addr]uint64{},
	}
}

// See takes in a pod that has its address for good, idle or claimed. An object older than a
// fence of its address says nothing.
func (t *Table) See(p Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if addr, known := t.byPod[p.UID]; known && addr != p.Addr {
		t.end(t.addrs[addr])
	}
	if p.RV < t.fences[p.Addr] {
		return
	}
	e := t.addrs[p.Addr]
	if e != nil && (e.pod != p.UID || e.claim != nil && (p.Claim == nil || p.Claim.ClaimID != e.claim.ClaimID)) {
		t.end(e)
		e = nil
	}
	if e == nil {
		e = &era{addr: p.Addr, pod: p.UID, claimed: make(chan struct{}), over: make(chan struct{}), drained: make(chan struct{}), uses: map[*Use]struct{}{}}
		t.addrs[p.Addr], t.byPod[p.UID] = e, p.Addr
	}
	e.rv = p.RV
	if p.Claim != nil {
		if e.claim == nil {
			close(e.claimed)
		}
		e.claim = p.Claim
		for u := range e.uses {
			u.judgeAgain()
		}
	}
	if !e.passed && !e.passing {
		e.passing = true
		go t.pass(e)
	}
}

// pass admits connections to an era once the barrier has passed.
func (t *Table) pass(e *era) {
	ctx, cancel := context.WithTimeout(context.Background(), barrierTimeout)
	defer cancel()
	err := t.o.Barrier(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	e.passed, e.passing = err == nil, false
	if err != nil {
		t.o.Log.Warn("an address is not served: connections that wait to be accepted could not be passed", "address", e.addr, "error", err)
	}
}

// Gone takes in that a pod has no claim and no address any more.
func (t *Table) Gone(uid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if addr, known := t.byPod[uid]; known {
		t.end(t.addrs[addr])
	}
}

// PodsSeen says that the pod watch has reached rv, and See and Gone were called for what it
// brought: fences up to it have nothing to refuse any more.
func (t *Table) PodsSeen(rv uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for addr, fence := range t.fences {
		if fence <= rv {
			delete(t.fences, addr)
		}
	}
}

// Fence ends what pod objects older than the fences say about their addresses, and refuses
// such objects from now on. Nil: nothing is served for what has ended at these addresses.
// An error is the context's; what was refused stays so, and the call may be repeated.
func (t *Table) Fence(ctx context.Context, fences []routecache.Fence) error {
	var wait []*era
	t.mu.Lock()
	for _, f := range fences {
		t.fences[f.Addr] = max(t.fences[f.Addr], f.RV)
		if e := t.addrs[f.Addr]; e != nil && e.rv < f.RV {
			t.end(e)
		}
		for e := range t.leaving[f.Addr] {
			wait = append(wait, e)
		}
	}
	t.mu.Unlock()
	return drained(ctx, wait)
}

// Drop makes every address unknown, as the loss of the lease does. Nil: nothing is served.
// The caller shows all pods again after it has listed them.
func (t *Table) Drop(ctx context.Context) error {
	var wait []*era
	t.mu.Lock()
	for _, e := range t.addrs {
		t.end(e)
	}
	for _, eras := range t.leaving {
		for e := range eras {
			wait = append(wait, e)
		}
	}
	t.mu.Unlock()
	return drained(ctx, wait)
}

func drained(ctx context.Context, eras []*era) error {
	for _, e := range eras {
		select {
		case <-e.drained:
		case <-ctx.Done():
			return fmt.Errorf("wait for the connections of %s: %w", e.addr, ctx.Err())
		}
	}
	return nil
}

// end ends an era: first no connection finds it, then those that it has are closed.
func (t *Table) end(e *era) {
	delete(t.addrs, e.addr)
	delete(t.byPod, e.pod)
	close(e.over)
	if len(e.uses) == 0 {
		close(e.drained)
		return
	}
	if t.leaving[e.addr] == nil {
		t.leaving[e.addr] = map[*era]struct{}{}
	}
	t.leaving[e.addr][e] = struct{}{}
	for u := range e.uses {
		u.close()
	}
}
