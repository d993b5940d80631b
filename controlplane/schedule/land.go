package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errUnsettled: the claim may have been applied, or still be, and the API
// server did not let us find out.
var errUnsettled = errors.New("claim could not be settled")

// errStopped: no other claim took the pod; this scheduler wrote it to stopping.
var errStopped = errors.New("stopped")

// land gets the claim onto the pod, or finds out that it did not. Whoever saw
// the binding may send the same claim, so that it is not on the pod is certain
// only with ErrPodTaken, ErrPodGone and ErrInvalid. Each write has a timeout of
// its own; waits end when the request is answered or the scheduler stops.
func (s *PoolScheduler) land(e *entry, claim Claim) (*corev1.Pod, error) {
	conflicts := 0
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		if err := s.over(e); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
		pod, v, err := apply(ctx, s.client, claim)
		cancel()
		switch v {
		case ambiguous:
			s.metrics.outcome(outcomeAmbiguous)
			return s.settle(claim, err)
		case conflicting:
			if conflicts++; conflicts >= conflictLimit {
				return nil, err
			}
		case throttled, unreachable:
			if err := s.pause(e, delay(err, wait), err); err != nil {
				return nil, err
			}
		default:
			return pod, err
		}
	}
}

// over says whether there is no reason to go on with an entry.
func (s *PoolScheduler) over(e *entry) error {
	select {
	case <-e.done:
		return errAnswered
	case <-s.stop:
		return s.shutdownError()
	default:
		return nil
	}
}

// pause waits before the next try; why explains a deadline that comes first.
func (s *PoolScheduler) pause(e *entry, d time.Duration, why error) error {
	s.mu.Lock()
	e.failure = why
	s.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-e.done:
		return errAnswered
	case <-s.stop:
		return s.shutdownError()
	}
}

// settle resolves a PATCH that may have been applied, or may still be, by a
// write: once the pod is stopping no claim can land on it.
func (s *PoolScheduler) settle(claim Claim, cause error) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		pod, err := settleOnce(ctx, s.client, claim)
		switch {
		case err == nil, errors.Is(err, ErrPodTaken), errors.Is(err, ErrPodGone), errors.Is(err, ErrClaimOver), errors.Is(err, ErrUnfenced):
			return pod, err
		case errors.Is(err, ErrForbidden), errors.Is(err, ErrInvalid), !sleep(ctx, delay(err, wait)):
			return nil, fmt.Errorf("%w: %w: %w", ErrUnavailable, errUnsettled, errors.Join(cause, err))
		}
	}
}

// settleOnce writes the pod to stopping if it is idle, else looks whose it is.
func settleOnce(ctx context.Context, c client.Client, claim Claim) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err := StopUnclaimed(ctx, c, claim)
	switch {
	case err == nil:
		return nil, fmt.Errorf("%s: %w: %w", claim.doing(), errStopped, ErrPodTaken)
	case errors.Is(err, ErrRefused):
		pod, _, err := whose(ctx, c, claim)
		return pod, err
	}
	return nil, err
}
