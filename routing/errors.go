package routing

import (
	"errors"
)

// Why a request gets no route. Test for them with errors.Is. docs/design/no-pod.md lists what
// a client is told of each. An error may also have a method RetryAfter() time.Duration.
var (
	// ErrNotFound: the sandbox does not exist, has ended, or is not to be seen by this caller.
	ErrNotFound = errors.New("the sandbox was not found")
	// ErrEnded: the sandbox has ended, or is ending.
	ErrEnded = errors.New("the sandbox has ended")
	// ErrUnusable: the claimed pod cannot be made ready for its sandbox, which ends.
	ErrUnusable = errors.New("the sandbox's pod cannot be made ready")
	// ErrExists: a sandbox that was to be made exists already, or its state has changed since it
	// was read. No answer: the request is resolved and authorised anew.
	ErrExists = errors.New("the sandbox exists")
	// ErrPoolNotFound: the sandbox's pool does not exist, or was deleted meanwhile.
	ErrPoolNotFound = errors.New("pool not found")
	// ErrNoMember: the env exists, and no pool of it does yet.
	ErrNoMember = errors.New("the env has no pool")
	// ErrNoCapacity: no idle pod before the deadline, or no room in the pool's queue.
	ErrNoCapacity = errors.New("no idle pod")
	// ErrNotRestorable: the sandbox hibernates, and its files cannot be restored in a pod of its
	// pool, or not by this gateway. Nothing was written.
	ErrNotRestorable = errors.New("the sandbox's kept files cannot be restored")
	// ErrSandboxLimit: the namespace has as many sandboxes as its ResourceQuota allows.
	ErrSandboxLimit = errors.New("sandbox limit reached")
	// ErrInvalid: the API server refuses the sandbox or its pod as invalid, whichever request
	// asks for it and when. It comes in an [InvalidError].
	ErrInvalid = errors.New("the sandbox is invalid")
	// ErrNotPermitted: the API server forbids this gateway what the request needs.
	ErrNotPermitted = errors.New("the gateway lacks a permission")
	// ErrUnavailable: the API server did not answer.
	ErrUnavailable = errors.New("API server unavailable")
	// ErrDraining: the gateway is stopping.
	ErrDraining = errors.New("the gateway is stopping")
	// ErrBadKey: the API key is not valid.
	ErrBadKey = errors.New("invalid API key")
	// ErrLimited: too many live reads.
	ErrLimited = errors.New("too many live reads")
	// ErrParkingFull: too many requests wait at this gateway; ErrNamespaceParking: of this
	// namespace; ErrKeylessParking: of those without a valid key; ErrNameParking: for this
	// sandbox.
	ErrParkingFull      = errors.New("too many waiting requests")
	ErrNamespaceParking = errors.New("too many waiting requests of the namespace")
	ErrKeylessParking   = errors.New("too many waiting requests without a key")
	ErrNameParking      = errors.New("too many waiting requests for the sandbox")
)

// InvalidError is an ErrInvalid.
type InvalidError struct {
	// Reason says what is wrong. The client reads it: it names no pod, and no value that may be
	// a secret.
	Reason string
}

func (e *InvalidError) Error() string { return ErrInvalid.Error() + ": " + e.Reason }

// Unwrap returns ErrInvalid.
func (e *InvalidError) Unwrap() error { return ErrInvalid }

// NoStartError is the ErrNoCapacity of a pool, or of all pools of an env, none of whose pods can
// start.
type NoStartError struct {
	// Reason is one word, as a node gave it; the client reads it.
	Reason string
}

func (e *NoStartError) Error() string {
	return ErrNoCapacity.Error() + ": pods cannot start: " + e.Reason
}

// Unwrap returns ErrNoCapacity.
func (*NoStartError) Unwrap() error { return ErrNoCapacity }
