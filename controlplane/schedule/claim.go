package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/failpoint"
)

const (
	// attemptTimeout bounds one write of a claim.
	attemptTimeout = 5 * time.Second
	// settleTimeout bounds how long an ambiguous claim is pursued, and an Unbind.
	settleTimeout = 15 * time.Second
	// conflictLimit is how often a write that lost the API server's own races is
	// sent again to one pod.
	conflictLimit = 5
	// refusalLimit is at which idle pod that refuses a request's claim it is
	// taken for a bug. Each one before it is written to stopping.
	refusalLimit = 2
	// retryMin and retryMax bound the waits between tries where the API server
	// named none.
	retryMin, retryMax = 50 * time.Millisecond, time.Second
	// viewLag bounds how long a request that lost its pod waits for the watch to
	// show that, before it tries another pod of a view that is known to be old.
	viewLag = 250 * time.Millisecond
)

// errAnswered ends a claim whose request was answered while it waited.
var errAnswered = errors.New("request was answered meanwhile")

// claim tries one pod for one entry; both belong to it alone. It ends with the
// entry answered or back in the queue, and the pod given back or cooling.
func (s *PoolScheduler) claim(e *entry, rec *podRecord) {
	if err := s.unwanted(e); err != nil {
		s.giveBack(rec, true)
		s.fail(e, err)
		return
	}
	claim, err := e.Opts.claim(rec.shape)
	claim.SandboxID, claim.ClaimID = e.SandboxID, e.ClaimID
	claim.Namespace, claim.PodName, claim.PodUID = s.namespace, rec.name, rec.uid
	if err == nil {
		err = s.bind(e, rec)
	}
	if err != nil {
		s.metrics.outcome(outcomeError)
		s.giveBack(rec, true)
		s.fail(e, err)
		return
	}
	failpoint.Hit("schedule/bound") // the binding stands, the PATCH is not sent
	pod, err := s.land(e, claim)
	if err == nil {
		failpoint.Hit("schedule/claimed") // the claim is on the pod, nobody is answered
	}
	if s.movesOn(e, err) {
		// Whoever saw the binding may still send the claim.
		pod, err = s.settle(claim, err)
	}
	s.conclude(e, rec, claim, pod, err)
}

// unwanted says why a claim is not to be begun: its request was answered, or has
// left, since it was given the pod. Nothing is written then.
func (s *PoolScheduler) unwanted(e *entry) error {
	if err := s.over(e); err != nil {
		return err
	}
	if e.Ctx.Err() != nil {
		return e.left(s.String())
	}
	return nil
}

// movesOn reports whether the entry is to leave an idle pod for the next one.
func (s *PoolScheduler) movesOn(e *entry, err error) bool {
	switch {
	case errors.Is(err, errUnsettled): // tried already
	case errors.Is(err, ErrRefused):
		e.refusals++
		return e.refusals < refusalLimit && s.over(e) == nil
	case errors.Is(err, errConflict):
		return s.over(e) == nil
	}
	return false
}

// bind runs the request's Bind for the pod. A pod that may not be reached is
// ended once the sandbox no longer names it: one that is stopped while the
// sandbox does ends the sandbox.
func (s *PoolScheduler) bind(e *entry, rec *podRecord) error {
	if e.Bind == nil {
		return nil
	}
	ctx, cancel := context.WithDeadline(context.Background(), e.Deadline)
	defer cancel()
	pod := e.attempt(rec, s.namespace)
	err := e.Bind(ctx, pod)
	switch {
	case err == nil:
		e.bound = pod
		s.endUnfenced(e)
		return nil
	case errors.Is(err, ErrBindLost):
		e.bound = nil // whoever owns the sandbox now has replaced it
		s.endUnfenced(e)
	}
	return fmt.Errorf("bind pod %s/%s: %w", s.namespace, rec.name, err)
}

// conclude acts on how a claim went.
func (s *PoolScheduler) conclude(e *entry, rec *podRecord, claim Claim, pod *corev1.Pod, err error) {
	switch {
	case err == nil:
		s.metrics.outcome(outcomeSuccess)
		s.cool(rec)
		s.succeed(e, claim, pod)
	case errors.Is(err, errUnsettled):
		// The claim may be on the pod, so the binding has to stay.
		s.metrics.outcome(outcomeError)
		s.cool(rec)
		e.bound = nil
		s.fail(e, err)
	case errors.Is(err, ErrPodTaken), errors.Is(err, ErrPodGone):
		s.metrics.outcome(outcomeConflict)
		if errors.Is(err, errStopped) {
			s.cool(rec)
		} else {
			s.catchUp(e, rec)
		}
		s.again(e)
	case errors.Is(err, ErrClaimOver):
		// Whoever sent it, the sandbox may have run there. Another pod would start it
		// again, empty, without a word. So the binding stays, and the sandbox waits
		// for its end.
		s.metrics.outcome(outcomeError)
		s.cool(rec)
		e.bound = nil
		s.fail(e, err)
	case errors.Is(err, ErrUnfenced):
		s.metrics.outcome(outcomeError)
		s.log.Warn("claimed pod does not have its fenced address; to be ended", "pod", claim.PodName)
		s.cool(rec)
		if e.unfenced = &claim; e.Bind == nil {
			s.endUnfenced(e)
		}
		s.again(e)
	case errors.Is(err, ErrInvalid): // whoever sends it
		s.metrics.outcome(outcomeError)
		s.giveBack(rec, true)
		s.fail(e, err)
	default: // ErrRefused, errConflict, ErrForbidden, ErrShutdown, errAnswered
		s.metrics.outcome(outcomeError)
		if errors.Is(err, ErrRefused) {
			s.log.Error("idle pods refuse claims", "pod", claim.PodName)
		}
		// Not applied by us, but whoever saw the binding may have sent the claim,
		// or may yet, and then the sandbox runs. So the binding stays, and the pod
		// is offered to others last.
		s.giveBack(rec, e.bound == nil && !errors.Is(err, ErrRefused))
		e.bound = nil
		s.fail(e, err)
	}
}

// endUnfenced ends the pod that carries the entry's claim and may not be
// reached, if there is one. No sandbox names it any more.
func (s *PoolScheduler) endUnfenced(e *entry) {
	if claim := e.unfenced; claim != nil {
		e.unfenced = nil
		s.claims.Go(func() { s.end(*claim) })
	}
}

// succeed answers with the pod. A claim that came too late for its request
// stands if a sandbox is bound to the pod; else nobody wants it.
func (s *PoolScheduler) succeed(e *entry, claim Claim, pod *corev1.Pod) {
	e.bound = nil
	s.mu.Lock()
	delivered := s.answer(e, ClaimResult{Pod: pod})
	s.mu.Unlock()
	if !delivered && e.Bind == nil {
		s.end(claim)
	}
}

// end writes a pod that carries the claim to stopping.
func (s *PoolScheduler) end(claim Claim) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		err := StopClaimed(ctx, s.client, claim)
		switch {
		case err == nil, errors.Is(err, ErrRefused), errors.Is(err, ErrPodGone):
			return
		case errors.Is(err, ErrForbidden), errors.Is(err, ErrInvalid), !sleep(ctx, delay(err, wait)):
			s.log.Warn("pod with an unwanted claim is left to the sweep", "pod", claim.PodName, "error", err)
			return
		}
	}
}

func (s *PoolScheduler) giveBack(rec *podRecord, front bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock.giveBack(rec, front)
	s.notify()
}

func (s *PoolScheduler) cool(rec *podRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock.cool(rec, time.Now())
	s.notify()
}

// catchUp reserves a pod that was lost to another, and waits until the feed shows that, for
// viewLag at most. The feed is in order: what others claimed before it is out of
// the queue by then too. A request that picked at once would meet them again.
func (s *PoolScheduler) catchUp(e *entry, rec *podRecord) {
	s.mu.Lock()
	if rec.listed {
		rec.seen = make(chan struct{})
	}
	seen := rec.seen
	s.stock.cool(rec, time.Now())
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
	case <-e.done:
	case <-s.stop:
	}
}

// sleep waits; false if ctx was done first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
