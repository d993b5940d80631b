package activation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandlane/sandlane/controlplane/schedule"
)

// The errors of Activate. Test for them with errors.Is. The table lists what can happen to
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
//	write: invalid, forbidden           ErrInvalid, ErrForbidden
//	API server away until the deadline  ErrUnavailable
//	claim failed, bound pod known lost  binding removed, testing its claim ID
//	claim failed, but this or another   binding stays; the next request follows it
//	process may have applied it
//	claimed pod's address must not be   replace the binding first, then stop that pod
//	used yet
//	bound pod carries the claim and     wait for the sandbox's end (its record says
//	is ending                           how it ran), then ErrEnded
//	Ready says EndSandbox               ErrUnusable; Ready, or the caller that set Make,
//	                                    ends the sandbox: nothing is routed to it
//	Ready says FailRequest              ErrNotReady, and the next request tries again
//	Ready fails otherwise               call Ready again; at the deadline ErrNotReady,
//	                                    and the next request tries again
//	claim is over before Ready is done  read
//	deadline while following            ErrNotReady
//	Shutdown                            ErrShutdown; claims under way are completed
//
// A first-request sandbox whose activation failed before it ever had a pod is
// left without a binding, for the next request or its startup timeout.
var (
	// ErrPoolNotFound: the pool does not exist, or was deleted meanwhile.
	ErrPoolNotFound = errors.New("pool not found")
	// ErrNoMember: no pool of the env exists yet.
	ErrNoMember = errors.New("the env has no pool")
	// ErrNoCapacity: no idle pod before the deadline, or no room in the queue.
	ErrNoCapacity = errors.New("no idle pod")
	// ErrEnded: the sandbox has ended, or is ending.
	ErrEnded = errors.New("the sandbox has ended")
	// ErrExists: the sandbox that was to be made exists. The caller must authorise the
	// request again, by what the existing sandbox requires.
	ErrExists = errors.New("the sandbox exists")
	// ErrOtherTenant: the sandbox has another namespace, pool, env or team than the
	// request. It is an ErrExists too.
	ErrOtherTenant = fmt.Errorf("%w in another namespace, pool or team", ErrExists)
	// ErrNotReady: the sandbox is bound, but its pod did not run or was not ready in time. It
	// is a context.DeadlineExceeded too.
	ErrNotReady = fmt.Errorf("the sandbox did not start in time: %w", context.DeadlineExceeded)
	// ErrNotRestorable: the sandbox's kept files cannot be restored in the idle pod, or not by
	// this gateway. Nothing was written; the error that it wraps or is joined with says why.
	ErrNotRestorable = errors.New("the sandbox's kept files cannot be restored")
	// ErrUnusable: the claimed pod cannot be made ready for its sandbox.
	ErrUnusable = errors.New("the sandbox's pod cannot be made ready")
	// ErrUnavailable: the API server did not answer.
	ErrUnavailable = errors.New("API server unavailable")
	// ErrInvalid: the API server refuses the write of the sandbox or its pod as invalid.
	ErrInvalid = errors.New("the sandbox is invalid")
	// ErrForbidden: this gateway may not do what the activation needs.
	ErrForbidden = errors.New("activation forbidden")
	// ErrShutdown: the gateway is stopping.
	ErrShutdown = errors.New("the gateway is stopping")
)

// NoStartError is the ErrNoCapacity of a pool, or of all pools of an env, none of whose pods can
// start.
type NoStartError struct {
	// Reason is one word, as a node gave it (ErrImagePull); the client reads it.
	Reason string
}

func (e *NoStartError) Error() string {
	return ErrNoCapacity.Error() + ": pods cannot start: " + e.Reason
}

// Unwrap makes it an ErrNoCapacity.
func (*NoStartError) Unwrap() error { return ErrNoCapacity }

// errGone: a sandbox that existed does not exist any more; the caller resolves again.
var errGone = errors.New("the sandbox is gone")

// RetryError wraps an error after which the client may try again: ErrNoCapacity, ErrNoMember,
// ErrParkingFull, ErrUnavailable or ErrShutdown.
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
	{schedule.ErrInvalid, ErrInvalid, false},
	{schedule.ErrForbidden, ErrForbidden, false},
	{schedule.ErrUnavailable, ErrUnavailable, true}, // before ErrDeadline, which can have it as its cause
	{schedule.ErrThrottled, ErrUnavailable, true},
	{schedule.ErrDeadline, ErrNoCapacity, true},
	{schedule.ErrPoolGone, ErrPoolNotFound, false},
	{schedule.ErrShutdown, ErrPoolNotFound, false}, // run returns ErrShutdown instead if the gateway stops
}

// fromSchedule returns the activation's error for a scheduler's error. Errors of this
// package, which bind has returned to the scheduler, stay as they are.
func fromSchedule(err error) error {
	if isOurs(err) {
		return err
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

func isOurs(err error) bool {
	for _, own := range []error{ErrEnded, ErrExists, ErrUnavailable, ErrInvalid, ErrForbidden, errGone} {
		if errors.Is(err, own) {
			return true
		}
	}
	return false
}
