package writes

import (
	"errors"
	"net"
	"net/http"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Verdict is what an API server's answer to a conditional write means.
type Verdict int

// The verdicts. Of all but Applied and Ambiguous this request was not applied. After
// TestFailed an earlier copy of it may have been, since a transport may send a request twice.
const (
	// Applied: there is no error.
	Applied Verdict = iota
	// TestFailed: a test of the patch failed, or an operation has no place: 422 without
	// causes. The object has moved on: look again.
	TestFailed
	// Invalid: 422 with causes, 400, and what other client errors there are. The same
	// write never succeeds.
	Invalid
	// Gone: 404, the object is not there.
	Gone
	// Conflict: 409. The API server lost a race of its own, or the object exists already.
	Conflict
	// Throttled: 429. Come back as apierrors.SuggestsClientDelay says.
	Throttled
	// Forbidden: 401 or 403.
	Forbidden
	// NotSent: the request never left this machine.
	NotSent
	// Ambiguous: everything else. The write may have been applied, or still be.
	Ambiguous
)

// ErrStale says that an object, or the route to its pod, has changed since the caller read it,
// so that nothing was done: read it again and judge anew. It is the one error for this, of
// writes, of calls to pods, and of what a gateway answers the controller.
var ErrStale = errors.New("it has changed since it was read")

// Judge returns what the error of a write or a read means; nil is Applied. All code
// asks Judge: a case that it gets wrong is corrected here.
func Judge(err error) Verdict {
	if err == nil {
		return Applied
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		if notSent(err) {
			return NotSent
		}
		return Ambiguous
	}
	s := status.Status()
	switch {
	case apierrors.IsInvalid(err):
		if s.Details != nil && len(s.Details.Causes) > 0 {
			return Invalid
		}
		return TestFailed
	case apierrors.IsNotFound(err):
		return Gone
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return Conflict
	case apierrors.IsTooManyRequests(err):
		return Throttled
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return Forbidden
	case apierrors.IsBadRequest(err), s.Code >= 400 && s.Code < 500 && s.Code != http.StatusRequestTimeout:
		return Invalid
	}
	return Ambiguous
}

// Refused reports whether a test of the patch failed.
func Refused(err error) bool { return Judge(err) == TestFailed }

// Moved reports whether the object is not as the patch asks, or is gone: a caller that acts
// on what it was has nothing more to do.
func Moved(err error) bool {
	v := Judge(err)
	return v == TestFailed || v == Gone
}

// Final reports whether it is of no use to send the write again.
func (v Verdict) Final() bool { return v == Invalid || v == Forbidden }

// notSent reports whether the connection was never made.
func notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED)
}
