package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// shutdownError is what a request hears that comes too late. The scheduler is
// closed, so that gone does not change any more.
func (s *PoolScheduler) shutdownError() error {
	if s.gone {
		return fmt.Errorf("pool %s: %w", s, ErrPoolGone)
	}
	return fmt.Errorf("pool %s: %w", s, ErrShutdown)
}

// late is why a waiting entry must not get a pod any more, if it must not. Its
// timer or its context say the same, but perhaps a moment later. The mutex is
// held.
func (s *PoolScheduler) late(e *entry, now time.Time) error {
	switch {
	case e.Ctx.Err() != nil:
		return e.left(s.String())
	case !now.Before(e.Deadline):
		return e.late(s.String())
	}
	return nil
}

// arm answers the entry at its deadline wherever it then is, and when its
// client leaves while it waits. The mutex is held, so that neither can run
// before disarm is set.
func (s *PoolScheduler) arm(e *entry, patience time.Duration) {
	deadline := time.AfterFunc(patience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answer(e, ClaimResult{Err: e.late(s.String())})
	})
	leave := context.AfterFunc(e.Ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if e.place != nil {
			s.answer(e, ClaimResult{Err: e.left(s.String())})
		}
	})
	e.disarm = func() { deadline.Stop(); leave() }
}

// left is the error of an entry whose context is done: at a deadline it is one.
func (e *entry) left(pool string) error {
	if err := context.Cause(e.Ctx); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("pool %s: request for a pod: %w", pool, err)
	}
	return e.late(pool)
}

// answer gives the entry its one result; false if it had one. An entry in the
// queue leaves it, and what it bound before is undone. The mutex is held.
func (s *PoolScheduler) answer(e *entry, result ClaimResult) bool {
	if e.answered {
		return false
	}
	e.answered = true
	e.disarm()
	close(e.done)
	if e.place != nil {
		s.waiting.remove(e)
		s.measure()
		if e.bound != nil {
			s.claims.Go(func() { s.undo(e) })
		}
	}
	select {
	case e.ResultCh <- result:
	default:
		go func() { e.ResultCh <- result }()
	}
	return true
}

// fail undoes what the entry bound and answers it. It belongs to the caller, a
// claim goroutine.
func (s *PoolScheduler) fail(e *entry, err error) {
	s.undo(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer(e, ClaimResult{Err: err})
}

// undo takes back the binding to a pod that is known to be lost, or not to be
// reached: that one is ended then. The entry belongs to the caller.
func (s *PoolScheduler) undo(e *entry) {
	pod := e.bound
	e.bound = nil
	defer s.endUnfenced(e)
	if pod == nil || e.Unbind == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	if err := e.Unbind(ctx, pod); err != nil {
		s.log.Warn("a binding to a lost pod stays until its sandbox is asked for again",
			"sandbox", e.SandboxID, "pod", pod.Name, "error", err)
		e.unfenced = nil // its sandbox names it: the pool's reconciler sees its address
	}
}

// again puts an entry that lost its pod first in line, under a new claim ID.
func (s *PoolScheduler) again(e *entry) {
	s.mu.Lock()
	var err error
	switch {
	case e.answered:
	case s.closed:
		err = s.shutdownError()
	case e.Ctx.Err() != nil:
		err = e.left(s.String())
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
	s.fail(e, err)
}
