package activation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandlane/sandlane/controlplane/schedule"
	"github.com/sandlane/sandlane/kubeclient"
	"github.com/sandlane/sandlane/routing"
)

// Activate fails with errors of package routing, and with these two. The table lists what can happen to
// an activation, and the error with which the activation ends or what it does; "read" means
// to read the sandbox again:
//
//	no such pool                        ErrPoolNotFound
//	no pool of the env                  ErrNoMember
//	scheduler's queue full, deadline    ErrNoCapacity
//	no pod of the pool, or of any pool  NoStartError after noStartPatience
//	of the env, can start
//	sandbox has ended, or is ending     ErrEnded
//	sandbox is paused                   nil: resolve again; if it hibernates and the
//	                                    request has its Resume, it is bound and resumed
//	sandbox of another namespace,       ErrOtherTenant
//	pool or team
//	New, and it exists without a pod,   ErrExists: authorise again, as an existing one
//	or was not made by a first request
//	no MayClaim, and no binding, or     ErrExists: authorise again, to claim
//	one whose pod is lost
//	not New, and it does not exist      nil: resolve again
//	create: exists already              read
//	binding patch: test failed          read: with the binding of this write, go on; with
//	                                    another binding, follow it
//	binding write: answer lost          read, then write again
//	binding write: refused, although    wait, then write again: 50 ms, doubled up to
//	its conditions hold                 a second
//	write or read: 429                  wait as long as Retry-After says
//	write: invalid, forbidden           ErrInvalid, ErrNotPermitted
//	API server away until the deadline  ErrUnavailable
//	claim failed, bound pod known lost  binding removed, testing its claim ID
//	claim failed, but this or another   binding stays; the next request follows it
//	process may have applied it
//	claimed pod's address must not be   replace the binding first, then stop that pod
//	used yet
//	bound pod carries the claim and     wait for the sandbox's end (its record says
//	is ending                           how it ran), then ErrEnded
//	Ready says EndSandbox               ErrUnusable; Ready, or the caller of Create,
//	                                    ends the sandbox: nothing is routed to it
//	Ready says FailRequest              ErrNotReady, and the next request tries again
//	Ready fails otherwise               call Ready again; at the deadline ErrNotReady,
//	                                    and the next request tries again
//	claim is over before Ready is done  read
//	deadline while following            ErrNotReady
//	Shutdown                            ErrDraining; claims under way are completed
//
// A first-request sandbox whose activation failed before it ever had a pod is
// left without a binding, for the next request or its startup timeout.
var (
	// ErrOtherTenant: the sandbox has another namespace, pool, env or team than the
	// request. It is an routing.ErrExists too.
	ErrOtherTenant = fmt.Errorf("%w in another namespace, pool or team", routing.ErrExists)
	// ErrNotReady: the sandbox is bound, but its pod did not run or was not ready in time. It
	// is a context.DeadlineExceeded too.
	ErrNotReady = fmt.Errorf("the sandbox did not start in time: %w", context.DeadlineExceeded)
)

// errGone: a sandbox that existed does not exist any more; the caller resolves again.
var errGone = errors.New("the sandbox is gone")

// RetryError wraps an error after which the client may try again: routing.ErrNoCapacity, routing.ErrNoMember,
// ErrParkingFull, routing.ErrUnavailable or routing.ErrDraining.
type RetryError struct {
	Err   error
	After time.Duration
}

func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *RetryError) Unwrap() error { return e.Err }

// RetryAfter is how long the client should wait before it tries again.
func (e *RetryError) RetryAfter() time.Duration { return e.After }

// retryAfter is how long clients are told to wait: about as long as a new pod takes to
// become idle, or an API server to answer again.
const retryAfter = time.Second

func retry(err error) error { return &RetryError{Err: err, After: retryAfter} }

// scheduleErrors are the scheduler's errors and the activation's error for each. The first
// one that matches counts. docs/design/no-pod.md shows the whole chain.
var scheduleErrors = []struct {
	from, to error
	retry    bool // the client may try again: make it a RetryError
}{
	{schedule.ErrUnavailable, routing.ErrUnavailable, true}, // before ErrDeadline, which can have it as its cause
	{schedule.ErrThrottled, routing.ErrUnavailable, true},
	{schedule.ErrDeadline, routing.ErrNoCapacity, true},
	{schedule.ErrPoolGone, routing.ErrPoolNotFound, false},
	{schedule.ErrShutdown, routing.ErrPoolNotFound, false}, // run returns ErrDraining instead if the gateway stops
}

// fromSchedule returns the activation's error for a scheduler's error. Errors of this
// package, which bind has returned to the scheduler, stay as they are.
func fromSchedule(err error) error {
	if isOurs(err) {
		return err
	}
	switch {
	case errors.Is(err, schedule.ErrInvalid):
		return invalid(err)
	case errors.Is(err, schedule.ErrForbidden):
		return forbidden(err)
	}
	for _, m := range scheduleErrors {
		if !errors.Is(err, m.from) {
			continue
		}
		err = fmt.Errorf("%w: %w", m.to, err)
		if m.retry {
			err = retry(err)
		}
		return err
	}
	return err
}

// invalid is a write or claim that was refused for what it asks for.
func invalid(err error) error {
	return fmt.Errorf("%w: %w", &routing.InvalidError{Reason: schedule.PublicReason(err)}, err)
}

// forbidden is a write or claim that the API server forbids this gateway, or a ResourceQuota
// any.
func forbidden(err error) error {
	if kubeclient.QuotaExceeded(err) {
		return fmt.Errorf("%w: %w", routing.ErrSandboxLimit, err)
	}
	return fmt.Errorf("%w: %w", routing.ErrNotPermitted, err)
}

func isOurs(err error) bool {
	for _, own := range []error{routing.ErrEnded, routing.ErrExists, routing.ErrUnavailable, routing.ErrInvalid, routing.ErrNotPermitted, routing.ErrSandboxLimit, errGone} {
		if errors.Is(err, own) {
			return true
		}
	}
	return false
}
