package extproc

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/sandlane/sandlane/routing"
)

// Reasons for a refusal that only this package finds; those of the parts behind its interfaces
// are package routing's.
var (
	// ErrForbidden: the sandbox has no pod, and its pool lets no request claim one for it.
	ErrForbidden = errors.New("forbidden")
	// ErrTransitioning: the sandbox was paused again each time the request had resumed it.
	ErrTransitioning = errors.New("the sandbox is still transitioning")
	// ErrOpenLimit: the sandbox has as many requests open here as it may.
	ErrOpenLimit = errors.New("too many open requests")
	// ErrNamespaceOpen: the namespace has its share of the gateway's open requests.
	ErrNamespaceOpen = errors.New("too many open requests of the namespace")
)

// retryAfterDefault is the Retry-After of answers whose error names none.
const retryAfterDefault = time.Second

// rejectionOf maps an error to the answer for the client; docs/design/no-pod.md shows
// where the errors of an activation come from. Unknown errors are 503: the gateway, not
// the sandbox, is at fault.
func rejectionOf(err error) *rejection {
	var (
		bad     *BadTargetError
		invalid *routing.InvalidError
		noStart *routing.NoStartError
		own     *rejection
	)
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &bad):
		return &rejection{reason: reasonBadTarget, status: http.StatusBadRequest, message: bad.msg}
	case errors.Is(err, errNoLease):
		return unavailable(reasonNoLease, messageUnavailable, err)
	case errors.Is(err, ErrNoTarget):
		return &rejection{reason: reasonNoTarget, status: http.StatusNotFound, message: messageNoTarget, forms: true}
	case errors.Is(err, routing.ErrNotFound), errors.Is(err, routing.ErrEnded), errors.Is(err, routing.ErrUnusable):
		return rejectNotFound()
	case errors.Is(err, routing.ErrPoolNotFound):
		return &rejection{reason: reasonPoolNotFound, status: http.StatusNotFound, message: "The sandbox's pool was not found. Make it, or name another in the header X-Sandbox-Pool."}
	case errors.Is(err, routing.ErrNoMember):
		return unavailable(reasonNoCapacity, "The sandbox's env has no pool yet. Try again in a moment; if that lasts, the conditions of the SandboxEnv say why.", err)
	case errors.Is(err, ErrForbidden):
		return &rejection{reason: reasonForbidden, status: http.StatusForbidden, message: messageNoClaim}
	case errors.Is(err, routing.ErrBadKey):
		return rejectBadKey()
	case errors.As(err, &invalid):
		return &rejection{reason: reasonInvalid, status: http.StatusBadRequest, message: "The sandbox cannot be made: " + invalid.Reason}
	case errors.Is(err, routing.ErrNotPermitted):
		return &rejection{reason: reasonNotPermitted, status: http.StatusInternalServerError, message: "The sandbox gateway lacks a permission; its log says which"}
	case errors.Is(err, routing.ErrNotRestorable):
		return unavailable(reasonNotRestorable, "The sandbox cannot be resumed: its files cannot be restored in a pod of its pool. The sandbox gateway's log says why.", err)
	case errors.Is(err, ErrTransitioning):
		return &rejection{reason: reasonTransitioning, status: http.StatusConflict, message: "The sandbox is still transitioning. Try again in a moment."}
	case errors.Is(err, routing.ErrSandboxLimit):
		return &rejection{reason: reasonSandboxLimit, status: http.StatusTooManyRequests, message: "Sandbox limit reached. End a sandbox of the namespace, or have its quota raised.", retryAfter: retryAfter(err)}
	case errors.Is(err, ErrOpenLimit):
		return tooMany(reasonOpenLimit, "The sandbox has too many open requests. Try again in a moment.", err)
	case errors.Is(err, ErrNamespaceOpen):
		return tooMany(reasonNamespaceOpen, "The sandbox's namespace has too many open requests at this gateway, and others need the room. Try again in a moment.", err)
	case errors.Is(err, routing.ErrNamespaceParking):
		return tooMany(reasonNamespaceParking, "Too many requests of the sandbox's namespace are waiting at this gateway. Try again in a moment.", err)
	case errors.Is(err, routing.ErrKeylessParking):
		return tooMany(reasonKeylessParking, "Too many requests without an API key are waiting at this gateway. Send a key in the header X-Sandbox-Api-Key, or try again in a moment.", err)
	case errors.Is(err, routing.ErrNameParking):
		return tooMany(reasonNameParking, "Too many requests are waiting for this sandbox. Try again in a moment.", err)
	case errors.As(err, &noStart):
		return unavailable(reasonNoCapacity, "The pods of the sandbox's pool cannot start: "+noStart.Reason+". The condition Available of the SandboxPool says why; once that is mended, try again.", err)
	case errors.Is(err, routing.ErrNoCapacity):
		return unavailable(reasonNoCapacity, "No idle pod is available for the sandbox. Try again in a moment.", err)
	case errors.Is(err, routing.ErrLimited):
		return unavailable(reasonLimited, "Too many lookups of unknown sandboxes. Try again in a moment.", err)
	case errors.Is(err, routing.ErrParkingFull):
		return unavailable(reasonParkingFull, "Too many requests are waiting for sandboxes at this gateway. Try again in a moment.", err)
	case errors.Is(err, routing.ErrDraining):
		return unavailable(reasonDraining, "The sandbox gateway is stopping. Try again in a moment.", err)
	case errors.Is(err, routing.ErrUnavailable): // also if its call to the API server was given up
		return unavailable(reasonInternal, messageUnavailable, err)
	case errors.Is(err, context.DeadlineExceeded):
		return unavailable(reasonDeadline, "The sandbox did not start in time. Try again in a moment.", err)
	default:
		return unavailable(reasonInternal, messageUnavailable, err)
	}
}

func unavailable(reason, message string, err error) *rejection {
	return &rejection{reason: reason, status: http.StatusServiceUnavailable, message: message, retryAfter: retryAfter(err)}
}

func tooMany(reason, message string, err error) *rejection {
	return &rejection{reason: reason, status: http.StatusTooManyRequests, message: message, retryAfter: retryAfter(err)}
}

func rejectNotFound() *rejection {
	return &rejection{reason: reasonNotFound, status: http.StatusBadGateway, message: "The sandbox was not found", heading: "Sandbox Not Found"}
}

func rejectBadKey() *rejection {
	return &rejection{
		reason: reasonBadKey, status: http.StatusUnauthorized,
		message: "Invalid or missing API key. Send a valid one in the header X-Sandbox-Api-Key",
	}
}

func rejectTraffic(token Field) *rejection {
	const head = "Sandbox is secured with traffic access token. "
	r := &rejection{reason: reasonTrafficToken, status: http.StatusForbidden}
	if token.Count == 0 {
		r.heading, r.message = "Missing Traffic Access Token", head+"Token header 'e2b-traffic-access-token' is missing"
	} else {
		r.heading, r.message = "Invalid Traffic Access Token", head+"Provided token in header 'e2b-traffic-access-token' is invalid"
	}
	return r
}

// retryAfter is how long the client shall wait, at least a second.
func retryAfter(err error) time.Duration {
	var r interface{ RetryAfter() time.Duration }
	if errors.As(err, &r) {
		return max(r.RetryAfter(), retryAfterDefault)
	}
	return retryAfterDefault
}

const (
	messageUnavailable  = "The sandbox gateway could not answer. Try again in a moment."
	messageNoClaim      = "The sandbox has no pod, and its pool lets no request claim one. Set firstRequest of its pool or env, or make a sandbox by the REST API."
	messageResumeDenied = "This sandbox can't be resumed with the credentials provided. Check your access token and try again."
)

// messageNoTarget shows the three forms of a target.
var messageNoTarget = "No sandbox named. Name one in one of these forms: " + strings.Join(targetForms[:], "; ")

var targetForms = [...]string{
	"host <port>-<ID>.<domain>",
	"headers X-Sandbox-Id and X-Sandbox-Port on localhost, an IP address or sandbox.<domain>",
	"path /sandboxes/<ID>/<port>/ on localhost, an IP address or sandbox.<domain>",
}
