package activation

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/routing"
)

// noStartPatience is how long none of the pools that may serve an activation can have started a pod
// before its requests are told so. A state that passes sooner fails nothing.
const noStartPatience = 3 * time.Second

// awaitClaim returns the scheduler's answer. While the pool has no idle pod the request may
// never get its turn, so awaitClaim leaves the queue when another process has given the
// sandbox a pod, or the sandbox has ended. To find that out it reads the sandbox: when the
// index has seen a change; and after a second, for a change that the index had seen before
// the activation began or while the activation had a pod that it lost then, and after a read
// that failed. While the pool has idle pods only a change in the index makes it read, so
// that a burst of requests that wait for their turn costs no reads.
//
// It leaves it with a routing.NoStartError when no pod could have started for noStartPatience.
//
// awaitClaim also leaves the queue when shouldLeave says so; moves is true then. It calls
// shouldLeave while the activation has no pod, also after it has lost one: the scheduler
// removes the binding to the lost pod when the request leaves. If a claim has begun
// meanwhile, the result is the result of that claim.
func (act *activation) awaitClaim(scheduler *schedule.PoolScheduler, pool string, results <-chan schedule.ClaimResult, leave func(), shouldLeave func() bool) (result schedule.ClaimResult, moves bool) {
	tick := time.NewTicker(followAfter)
	defer tick.Stop()
	var noStartSince time.Time // zero while a pod may start
	var mayRead time.Time      // from when on the sandbox may be read again, after a read that failed
	for unseen := true; ; {
		select {
		case result := <-results:
			return result, false
		case <-act.changed:
			unseen = true
		case <-tick.C:
			if scheduler.Stocked() {
				noStartSince = time.Time{}
				continue // the request gets its turn soon, and its conditional write finds out
			}
		}
		replaces := act.waiting.Load()
		switch reason := act.noStart(pool); {
		case reason == "" || replaces == nil:
			noStartSince = time.Time{}
		case noStartSince.IsZero():
			noStartSince = time.Now()
		case time.Since(noStartSince) >= noStartPatience:
			leave()
			if result = <-results; errors.Is(result.Err, context.Canceled) && act.ctx.Err() == nil {
				result.Err = retry(&routing.NoStartError{Reason: reason})
			}
			return result, false
		}
		if replaces != nil && shouldLeave != nil && shouldLeave() {
			leave()
			return <-results, true
		}
		if !unseen || replaces == nil || time.Now().Before(mayRead) {
			continue
		}
		settled, err := act.settledElsewhere(*replaces)
		if err != nil {
			mayRead = time.Now().Add(callTimeout) // thousands of requests may wait: they must not all read each second
			continue
		}
		if act.waiting.Load() != replaces {
			continue // the scheduler has found a pod meanwhile, and the binding that was read may be to that pod
		}
		if settled {
			leave()
			return <-results, false // if a claim has begun meanwhile, its result
		}
		unseen = false
	}
}

// noStart returns the reason for which no pod can start that the activation may get: of the pool, or
// of any member of its env; empty if one may.
func (act *activation) noStart(pool string) string {
	reason := act.a.o.NoStart(act.Namespace, pool)
	if act.Env == "" || reason == "" {
		return reason
	}
	for _, m := range act.a.o.Members(act.Namespace, act.Env) {
		if act.a.o.NoStart(act.Namespace, m.Pool) == "" {
			return ""
		}
	}
	return reason
}

// settledElsewhere reads the sandbox and reports whether it has ended, or has another
// binding than the one to be replaced. It returns false for a sandbox that does not exist.
func (act *activation) settledElsewhere(replaces string) (bool, error) {
	s := &v1alpha1.Sandbox{}
	if err := act.readOnce(act.ctx, client.ObjectKey{Name: act.ID}, s); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	b := s.Spec.Binding
	return s.Spec.End != nil || s.DeletionTimestamp != nil || b != nil && b.ClaimID != replaces, nil
}

// markWaiting notes that the activation waits for a pod. replaces is the claim ID of the
// binding that the binding to that pod will replace; empty if there is none.
func (act *activation) markWaiting(replaces string) { act.waiting.Store(&replaces) }
