package activation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandlane/sandlane/controlplane/schedule"
)

// What Activate can fail with. Test with errors.Is. What an activation meets, and what it
// ends with or does about it:
//
//	no such pool                        ErrPoolNotFound
//	scheduler's queue full, deadline    ErrNoCapacity
//	sandbox has ended, or is ending     ErrEnded
//	sandbox is paused                   nil: resolve again; with Resume, and it
//	                                    hibernates, it is resumed as it is bound
//	sandbox of another namespace,       ErrOtherTenant
//	pool or team
//	New, and it exists without a pod,   ErrExists: authorise again, by what it is
//	or was not made by a first request
//	no MayClaim, and no binding, or     ErrExists: authorise again, to claim
//	one whose pod is lost
//	not New, and it is gone             nil: resolve again
//	create: exists already              look at it
//	binding patch: test failed          look at it: ours = written; another's = follow
//	binding write: anything ambiguous   look at it, then write again
//	binding write: refused, and what a  wait, then write again: 50 ms, doubled up to
//	look finds allows it                a second
//	write or read: 429                  waited out, Retry-After honoured
//	write: invalid, forbidden           ErrInvalid, ErrForbidden
//	API server away until the deadline  ErrUnavailable
//	claim failed, bound pod known lost  binding removed, testing its claim ID
//	claim failed, perhaps applied, or   binding stays; the next request follows it
//	not by us but perhaps by another
//	claimed pod may not be reached      replace the binding first, then end that pod
//	bound pod carries the claim and     wait for the sandbox's end (its record says
//	is ending                           how it ran), then ErrEnded
//	Ready refuses for good              ErrUnusable; its sandbox is ended, by Ready or
//	                                    by the caller with Make: nothing is routed to it
//	Ready refuses for now               ErrNotReady, and the next request tries again
//	Ready fails otherwise               tried again; at the deadline ErrNotReady, and
//	                                    the next request tries again
//	claim is over before Ready is done  look at it
//	deadline while following            ErrNotReady
//	Shutdown                            ErrShutdown; claims under way settle
//
// A first-request sandbox whose activation failed before it ever had a pod is
// left without a binding, for the next request or its startup timeout.
var (
	// ErrPoolNotFound: the pool does not exist, or was deleted meanwhile.
	ErrPoolNotFound = errors.New("pool not found")
	// ErrNoCapacity: no idle pod before the deadline, or no room in the queue.
	ErrNoCapacity = errors.New("no idle pod")
	// ErrEnded: the sandbox is over.
	ErrEnded = errors.New("the sandbox has ended")
	// ErrExists: the sandbox that was to be made exists, and what it takes to
	// reach it has to be looked at anew.
	ErrExists = errors.New("the sandbox exists")
	// ErrOtherTenant: the sandbox is of another namespace, pool or team than the
	// request expects. It is an ErrExists too.
	ErrOtherTenant = fmt.Errorf("%w in another namespace, pool or team", ErrExists)
	// ErrParkingFull: too many requests wait already.
	ErrParkingFull = errors.New("too many waiting requests")
	// ErrNotReady: the sandbox is bound, but its pod did not run in time. It is a
	// context.DeadlineExceeded too.
	ErrNotReady = fmt.Errorf("the sandbox did not start in time: %w", context.DeadlineExceeded)
	// ErrAgain: a Ready has come further, and is called again at once.
	ErrAgain = errors.New("the sandbox's pod is not ready yet")
	// ErrUnusable: the claimed pod refuses what makes it ready for its sandbox.
	ErrUnusable = errors.New("the sandbox's pod cannot be made ready")
	// ErrUnavailable: the API server did not answer.
	ErrUnavailable = errors.New("API server unavailable")
	// ErrInvalid: the API server refuses the sandbox or its pod's change.
	ErrInvalid = errors.New("the sandbox is invalid")
	// ErrForbidden: this gateway may not do what the activation needs.
	ErrForbidden = errors.New("activation forbidden")
	// ErrShutdown: the gateway is stopping.
	ErrShutdown = errors.New("the gateway is stopping")
)

// errGone: a sandbox that was known is gone; the caller resolves again.
var errGone = errors.New("the sandbox is gone")

// RetryError is an error that will pass: ErrNoCapacity, ErrParkingFull,
// ErrUnavailable or ErrShutdown.
type RetryError struct {
	Err   error
	After time.Duration
}

func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *RetryError) Unwrap() error { return e.Err }

// RetryAfter is how long the client should wait before it tries again.
func (e *RetryError) RetryAfter() time.Duration { return e.After }

// retryAfter is what clients are told to wait: about as long as a pod takes to
// become idle, or an API server to come back.
const retryAfter = time.Second

func retry(err error) error { return &RetryError{Err: err, After: retryAfter} }

// scheduleErrors say what the scheduler's errors mean for the activation, in the
// order in which they are looked for; docs/design/no-pod.md shows the whole chain.
var scheduleErrors = []struct {
	from, to error
	passes   bool // will pass: a RetryError
}{
	{schedule.ErrInvalid, ErrInvalid, false},
	{schedule.ErrForbidden, ErrForbidden, false},
	{schedule.ErrUnavailable, ErrUnavailable, true}, // before the deadline, whose reason it can be
	{schedule.ErrThrottled, ErrUnavailable, true},
	{schedule.ErrDeadline, ErrNoCapacity, true},
	{schedule.ErrPoolGone, ErrPoolNotFound, false},
	{schedule.ErrShutdown, ErrPoolNotFound, false}, // run returns ErrShutdown instead if the gateway stops
}

// fromSchedule says what a scheduler's error means for the activation. Errors of
// Bind, which are this package's, pass through.
func fromSchedule(err error) error {
	if isOurs(err) {
		return err
	}
	for _, m := range scheduleErrors {
		if !errors.Is(err, m.from) {
			continue
		}
		err = fmt.Errorf("%w: %w", m.to, err)
		if m.passes {
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
