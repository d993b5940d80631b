package chaos

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/stack"
)

// How much TestKilledFromOutside must have done at least.
const (
	watchDelay   = 5 * time.Second
	wantKilled   = 80
	wantForced   = 80
	wantNodes    = 3
	wantSoonUsed = 100

	wantLateServed, wantLateOver = 100, 1000
)

// Pods die without a request to Sandlane: their processes are killed, their objects are
// deleted with no grace, and the whole node is killed. Their addresses serve other sandboxes
// at once, and the watches of one gateway are five seconds late. No answer comes from another
// sandbox's pod.
func TestKilledFromOutside(t *testing.T) {
	const slots = 14
	ns := shared.Namespace(t)
	// There are fewer idle pods than slots: most claims wait for a pod, and get it as soon as
	// its address is free.
	shared.Pool(t, ns, "pool", 4, stack.WithIdleTimeout(0))
	l := newLoad(t, ns+"/pool")
	gateways := shared.Up.Gateways
	late := gateways[2]
	delayWatches(t, l, late, gateways[0], watchDelay)
	// This takes some four minutes, or longer on a busy machine.
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	h := &harm{on: shared}
	pid, err := nodePID(ctx, shared, 0)
	if err != nil {
		t.Fatal(err)
	}
	h.node.Store(int64(pid))
	soon := func() int { return record.ReusedWithin(watchDelay) }
	before, soonBefore, began := record.Reused(), soon(), time.Now()
	// Few sandboxes live longer than the late gateway's watches are late, so most requests to
	// that gateway are for sandboxes that have ended.
	fromLate := func() (served, over int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.status[late.Name+" 200"], l.status[late.Name+" 502"]
	}
	more := func() bool {
		served, over := fromLate()
		return ctx.Err() == nil && (served < wantLateServed || over < wantLateOver || h.killed.Load() < wantKilled || h.forced.Load() < wantForced ||
			h.nodes.Load() < wantNodes || soon()-soonBefore < wantSoonUsed)
	}
	var all sync.WaitGroup
	for i := range slots {
		prefix := fmt.Sprintf("%s-%d", ns, i)
		s := &slot{id: prefix + "-0", gone: map[string]bool{}}
		for _, g := range gateways {
			l.hammer(g, 50*time.Millisecond, s.current, s.seen)
			l.hammer(g, 50*time.Millisecond, s.former, nil)
		}
		all.Go(func() {
			if err := h.life(ctx, s, prefix, 5*len(gateways), more); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	all.Go(func() { // the node, each time after some more pods
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for more() {
			<-tick.C
			if h.nodes.Load() < wantNodes && h.done() >= (int(h.nodes.Load())+1)*(wantKilled+wantForced)/(wantNodes+1) {
				if err := h.killNode(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	all.Wait()
	took := time.Since(began)
	l.judge()
	reused, used := record.Reused()-before, soon()-soonBefore
	t.Logf("%d pods' processes killed, %d pod objects deleted with no grace, the node killed %d times, in %v; %d addresses used again by another sandbox, %d of them within the %v by which %s was late; %d sandboxes outlived the first try",
		h.killed.Load(), h.forced.Load(), h.nodes.Load(), took.Round(time.Second), reused, used, watchDelay, late.Name, h.survived.Load())
	if h.killed.Load() < wantKilled || h.forced.Load() < wantForced || h.nodes.Load() < wantNodes || used < wantSoonUsed {
		t.Errorf("that is too little: want %d killed, %d deleted, %d times the node, %d addresses used again while %s was late",
			wantKilled, wantForced, wantNodes, wantSoonUsed, late.Name)
	}
	if served, over := fromLate(); served < wantLateServed || over < wantLateOver {
		t.Errorf("%s sent %d answers of pods and %d that there is none: want %d and %d", late.Name, served, over, wantLateServed, wantLateOver)
	}
}
