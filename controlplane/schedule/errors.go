package schedule

import (
	"errors"
	"fmt"
)

// What a claim can fail with. Test with errors.Is: every error returned is
// wrapped with what was being done.
var (
	// ErrShutdown: the scheduler is stopping. Ask another gateway.
	ErrShutdown = errors.New("claim scheduler shut down: ask again, another gateway answers")
	// ErrNoClient: the scheduler was made without a client.
	ErrNoClient = errors.New("the claim scheduler was made without a client")
	// ErrPoolGone: the pool was deleted while the request waited.
	ErrPoolGone = errors.New("the pool is gone: ask for a sandbox of a pool that exists")
	// ErrDeadline: the request's deadline passed. With ErrUnavailable or
	// ErrThrottled in the chain the API server was the reason, else the pool had
	// no idle pod, or the request's turn had not come: the text says which.
	ErrDeadline = errors.New("no pod before the deadline")
	// ErrInvalid: the claim asks for what the API server, or this package,
	// refuses whichever pod it is tried on. What follows it says which field.
	ErrInvalid = errors.New("invalid claim: correct what it asks for")
	// ErrForbidden: the API server does not let us claim.
	ErrForbidden = errors.New("claim forbidden: the gateway's account needs get and patch on the pods of this namespace")
	// ErrUnavailable: the API server could not be reached, or gave no answer
	// that says whether the write was applied.
	ErrUnavailable = errors.New("API server unavailable")
	// ErrThrottled: the API server asked to come back later.
	ErrThrottled = errors.New("throttled by the API server")
	// ErrRefused: a live read shows the pod idle, yet the claim does not apply
	// to it. From a scheduler it is a bug, ours or of the pod's maker.
	ErrRefused = errors.New("claim does not apply to an idle pod")
	// ErrPodTaken: the pod has left idle without this claim.
	ErrPodTaken = errors.New("pod is taken")
	// ErrClaimOver: the claim was applied, by this or another process, and its pod is ending. The
	// sandbox may have run there, so it ends with the pod and gets no other.
	ErrClaimOver = errors.New("claim is over: its pod is ending")
	// ErrPodGone: no pod of that name and UID exists.
	ErrPodGone = errors.New("pod is gone")
	// ErrUnroutable: the claim was applied, but the pod's IP is not the address
	// that was free for it, or the pod was over by then. It has served no sandbox
	// and never will. The caller ends it (StopClaimed).
	ErrUnroutable = errors.New("claimed pod has no routable address")

	errConflict = fmt.Errorf("%w: it gave up on its own write races", ErrUnavailable)
)

// InvalidError is an ErrInvalid with what is wrong. What is wrapped around it may
// name a pod; Reason does not, and shows nothing of the pod's environment.
type InvalidError struct{ Reason string }

func invalidf(format string, args ...any) error { return &InvalidError{fmt.Sprintf(format, args...)} }

func (e *InvalidError) Error() string { return ErrInvalid.Error() + ": " + e.Reason }

// Unwrap makes it an ErrInvalid.
func (*InvalidError) Unwrap() error { return ErrInvalid }

// PublicReason is what a client may read of an error that says that a claim, or the
// API server's object, is invalid.
func PublicReason(err error) string {
	var invalid *InvalidError
	if errors.As(err, &invalid) {
		return invalid.Reason
	}
	return Reasons(err)
}
