package schedule

import (
	"context"
	"errors"
	"time"

	"github.com/sandlane/sandlane/kubeclient/backoff"
)

// viewLag bounds how long a request that lost its pod waits for the watch to
// show that, before it tries another pod of a view that is known to be old.
const viewLag = 250 * time.Millisecond

// giveBack ends the reservation of the attempt's pod, which was not touched. front puts it
// at the head of the queue, which a gateway with pick offset 0 picks next.
func (a *attempt) giveBack(front bool) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	a.s.stock.giveBack(a.rec, front)
	a.s.notify()
}

// cool keeps the pod reserved until the feed shows what the attempt wrote to it.
func (a *attempt) cool() {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	a.s.stock.cool(a.rec, time.Now())
	a.s.notify()
}

// catchUp keeps a pod that another claim has taken reserved, and waits until the feed
// shows that, for viewLag at most. The feed is in order: by then pods that were claimed
// before it are out of the queue too. A request that picked at once would meet the other
// gateways again.
func (a *attempt) catchUp() {
	s := a.s
	s.mu.Lock()
	if a.rec.listed {
		a.rec.seen = make(chan struct{})
	}
	seen := a.rec.seen
	s.stock.cool(a.rec, time.Now())
	s.notify()
	s.mu.Unlock()
	if seen == nil {
		return
	}
	t := time.NewTimer(viewLag)
	defer t.Stop()
	select {
	case <-seen:
	case <-t.C:
	case <-a.done:
	case <-s.stop:
	}
}

// end writes a pod that carries the claim to stopping.
func (s *PoolScheduler) end(claim Claim) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	for delays := backoff.Doubling(retryMin, retryMax); ; {
		err := StopClaimed(ctx, s.client, claim)
		switch {
		case err == nil, errors.Is(err, ErrRefused), errors.Is(err, ErrPodGone):
			return
		case errors.Is(err, ErrForbidden), errors.Is(err, ErrInvalid), !backoff.Sleep(ctx, backoff.Asked(err, delays.Step())):
			s.log.Warn("pod with an unwanted claim is left to the sweep", "pod", claim.PodName, "error", err)
			return
		}
	}
}
