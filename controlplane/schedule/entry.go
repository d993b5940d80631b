package schedule

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// entry is a request inside the scheduler. Its life, which this file tells in order:
// arm, then per pod an attempt, which ends in answer, fail (undo, then answer) or again.
//
//	waiting ──a pod is picked──▶ claiming ──applied──▶ answered with the pod
//	   ▲                            ├──pod lost, time left──▶ waiting (first in line, new claim ID)
//	   └────────────────────────────┘
//	waiting ──deadline, Ctx done, Shutdown──▶ answered with an error
//	claiming ──deadline──▶ answered with ErrDeadline; the claim settles by itself
//
// Tenants take turns in the queue; within one it is first come, first served. At
// most as many requests as room has are claiming at a time, the others wait. A pod whose
// images fit already is picked before one that has to be changed.
//
// Whether a request is still wanted is asked when it is picked, and once more
// before its Bind: one whose client has left, or whose deadline has come, writes
// nothing and takes no pod.
//
// Only the Run goroutine moves a request from waiting to claiming. It is answered
// once, under the mutex. The mutex guards all queues and is
// never held over a call to the API server or to Bind. A claim runs on contexts
// of its own: a client that leaves while its claim is on the way does not undo
// it.
type entry struct {
	*ClaimRequest
	s    *PoolScheduler
	done chan struct{} // closed when answered

	// The scheduler's mutex guards these.
	answered   bool
	element    *list.Element // in the waiting queue; nil while claiming
	failure    error         // why the last pod was lost; explains a deadline
	disarm     func()
	dispatched bool

	// Owned by the queue while the entry waits, else by its attempt.
	bound      *corev1.Pod // the pod of the last successful Bind, while the sandbox names it
	unroutable *Claim      // on the pod that bound names, which may not be reached; to be ended once bound does not
	refusals   int         // idle pods that did not take its claim
}

// arm sets the timer that answers the entry at its deadline, wherever it then is,
// and the function that answers it when its client leaves while it waits. The mutex
// is held, so that neither can run before disarm is set.
func (e *entry) arm(patience time.Duration) {
	deadline := time.AfterFunc(patience, func() {
		e.s.mu.Lock()
		defer e.s.mu.Unlock()
		e.answer(ClaimResult{Err: e.deadlineError()})
	})
	leave := context.AfterFunc(e.Ctx, func() {
		e.s.mu.Lock()
		defer e.s.mu.Unlock()
		if e.element != nil {
			e.answer(ClaimResult{Err: e.leftError()})
		}
	})
	e.disarm = func() { deadline.Stop(); leave() }
}

// tooLate is why a waiting entry must not get a pod any more; nil if it may. Its
// timer or its context say the same, but perhaps a moment later. The mutex is
// held.
func (e *entry) tooLate(now time.Time) error {
	switch {
	case e.Ctx.Err() != nil:
		return e.leftError()
	case !now.Before(e.Deadline):
		return e.deadlineError()
	}
	return nil
}

// stopReason says why to stop working for the entry: it is answered, or the
// scheduler is shut down; nil to go on.
func (e *entry) stopReason() error {
	select {
	case <-e.done:
		return errAnswered
	case <-e.s.stop:
		return e.s.shutdownError()
	default:
		return nil
	}
}

// sleep waits before the next try; why explains a deadline that comes first. It
// returns the stopReason if there is one before d is over.
func (e *entry) sleep(d time.Duration, why error) error {
	e.s.mu.Lock()
	e.failure = why
	e.s.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-e.done:
		return errAnswered
	case <-e.s.stop:
		return e.s.shutdownError()
	}
}

// answer gives the entry its one result; false if it had one. An entry in the
// queue leaves it, and what it bound before is undone. The mutex is held.
func (e *entry) answer(result ClaimResult) bool {
	if e.answered {
		return false
	}
	e.answered = true
	e.disarm()
	close(e.done)
	if e.element != nil {
		e.s.waiting.remove(e)
		e.s.measure()
		if e.bound != nil {
			e.s.claims.Go(e.undo)
		}
	}
	send(e.ResultCh, result)
	return true
}

// send does not wait for room in the channel.
func send(to chan<- ClaimResult, result ClaimResult) {
	select {
	case to <- result:
	default:
		go func() { to <- result }()
	}
}

// fail undoes what the entry bound and answers it. It belongs to the caller, an
// attempt.
func (e *entry) fail(err error) {
	e.undo()
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	e.answer(ClaimResult{Err: err})
}

// undo takes back the binding to a pod that is known to be lost, or not to be
// reached: that one is ended then. The entry belongs to the caller.
func (e *entry) undo() {
	pod := e.bound
	e.bound = nil
	defer e.endUnroutable()
	if pod == nil || e.Unbind == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	if err := e.Unbind(ctx, pod); err != nil {
		e.s.log.Warn("a binding to a lost pod stays until its sandbox is asked for again",
			"sandbox", e.SandboxID, "pod", pod.Name, "error", err)
		e.unroutable = nil // its sandbox names it: the pool's reconciler sees its address
	}
}

// endUnroutable ends the pod that carries the entry's claim and may not be
// reached, if there is one. No sandbox names it any more.
func (e *entry) endUnroutable() {
	if claim := e.unroutable; claim != nil {
		e.unroutable = nil
		e.s.claims.Go(func() { e.s.end(*claim) })
	}
}

// again puts an entry that lost its pod first in line, under a new claim ID. The
// entry belongs to the caller, and to the queue afterwards.
func (e *entry) again() {
	s := e.s
	s.mu.Lock()
	var err error
	switch {
	case e.answered:
	case s.closed:
		err = s.shutdownError()
	case e.Ctx.Err() != nil:
		err = e.leftError()
	default:
		e.failure, e.ClaimID = nil, NewClaimID()
		if e.Lost != nil {
			e.Lost()
		}
		s.waiting.push(e, true)
		s.notify()
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	e.fail(err)
}

// errAnswered ends an attempt whose request was answered while it waited.
var errAnswered = errors.New("request was answered meanwhile")

// leftError is the error of an entry whose context is done: at a deadline it is one.
func (e *entry) leftError() error {
	if err := context.Cause(e.Ctx); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("pool %s: request for a pod: %w", e.s, err)
	}
	return e.deadlineError()
}

// deadlineError is the error of an entry whose deadline has passed. The mutex is held while it waits.
func (e *entry) deadlineError() error {
	switch {
	case e.failure != nil:
		return fmt.Errorf("pool %s: %w: %w", e.s, ErrDeadline, e.failure)
	case e.element == nil:
		return fmt.Errorf("pool %s: %w: a claim is under way: %w", e.s, ErrDeadline, ErrUnavailable)
	case len(e.s.stock.queue) > 0:
		return fmt.Errorf("pool %s: %w: there are idle pods, but the claims before it took too long", e.s, ErrDeadline)
	}
	return fmt.Errorf("pool %s: %w", e.s, ErrDeadline)
}

// shutdownError is the error for requests after Shutdown. The scheduler is closed, so
// that gone does not change any more.
func (s *PoolScheduler) shutdownError() error {
	if s.gone {
		return fmt.Errorf("pool %s: %w", s, ErrPoolGone)
	}
	return fmt.Errorf("pool %s: %w", s, ErrShutdown)
}
