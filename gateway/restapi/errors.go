package restapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/sandlane/sandlane/gateway/restapi/api"
	"github.com/sandlane/sandlane/gateway/restapi/idempotency"
	"github.com/sandlane/sandlane/gateway/restapi/requestbody"
	"github.com/sandlane/sandlane/gateway/restapi/requestid"
	"github.com/sandlane/sandlane/routing"
)

// statusClientGone is what the metrics show of a request whose client left.
const statusClientGone = 499

// refusal is an error that the client may read.
type refusal struct {
	status     int
	message    string
	retryAfter time.Duration // 0 says nothing
	// noRetry tells SDKs not to repeat this by themselves.
	noRetry bool
	// unsupported names the field that asks for what Sandlane does not do; empty: none does.
	unsupported string
}

func (e *refusal) Error() string { return e.message }

func refuse(status int, message string) *refusal { return &refusal{status: status, message: message} }

// unsupportedField refuses a field by its name.
func unsupportedField(field, why string) *refusal {
	return &refusal{status: http.StatusBadRequest, message: field + ": " + why, unsupported: field}
}

func internal(id string) *refusal {
	return refuse(http.StatusInternalServerError, "Internal error; its ID in the log is "+id)
}

// InvalidError is an ErrInvalid whose reason the client reads. What is wrapped around
// it stays inside.
type InvalidError struct{ Reason string }

// Invalidf returns an InvalidError.
func Invalidf(format string, args ...any) *InvalidError {
	return &InvalidError{fmt.Sprintf(format, args...)}
}

func (e *InvalidError) Error() string { return ErrInvalid.Error() + ": " + e.Reason }

// Unwrap makes it an ErrInvalid.
func (*InvalidError) Unwrap() error { return ErrInvalid }

func notFound(sandboxID string) *refusal {
	return refuse(http.StatusNotFound, fmt.Sprintf("Sandbox %q doesn't exist or you don't have access to it", sandboxID))
}

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := s.refusalOf(r, err)
	if e.unsupported != "" {
		s.metrics.unsupported.WithLabelValues(callOf(r).route.Name(), e.unsupported).Inc()
	}
	if e.retryAfter > 0 {
		w.Header().Set("Retry-After", seconds(e.retryAfter))
	}
	if e.noRetry {
		w.Header().Set("Should-Retry", "false")
	}
	writeJSON(w, e.status, api.Error{Code: e.status, Message: e.message})
}

// refusalOf says what a client may know of an error. Whatever is not listed stays
// in the log.
func (s *Server) refusalOf(r *http.Request, err error) *refusal {
	var e *refusal
	var refused *RefusedBuildError
	var wrong *requestbody.Error
	var noStart *routing.NoStartError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &wrong):
		return refuse(wrong.Status, wrong.Message)
	case errors.As(err, &refused):
		return refuse(http.StatusBadRequest, refused.Reason)
	case r.Context().Err() != nil:
		return refuse(statusClientGone, "The client closed the request.")
	case errors.Is(err, idempotency.ErrKeyReused):
		return refuse(http.StatusConflict, "The Idempotency-Key was used with another request.")
	case errors.Is(err, ErrOutcomeUnknown):
		// Answered after the switch; what else it wraps does not count.
	case errors.Is(err, ErrPausing): // ErrPausing and ErrResuming wrap ErrNotFound, so they come first
		return refuse(http.StatusConflict, fmt.Sprintf("Sandbox %s is being paused", callOf(r).sandboxID))
	case errors.Is(err, ErrResuming):
		return refuse(http.StatusConflict, fmt.Sprintf("Sandbox %s is being resumed", callOf(r).sandboxID))
	case errors.Is(err, ErrNotFound):
		return notFound(callOf(r).sandboxID)
	case errors.Is(err, ErrNotRunning):
		return refuse(http.StatusConflict, fmt.Sprintf("Sandbox %s is not running: it is paused already, or is being started, paused or ended", callOf(r).sandboxID))
	case errors.Is(err, ErrNoStore):
		return noStore()
	case errors.Is(err, ErrNoSnapshot):
		return refuse(http.StatusNotFound, "The snapshot doesn't exist or you don't have access to it")
	case errors.Is(err, ErrSnapshotTooLarge):
		return refuse(http.StatusInsufficientStorage, "The sandbox's files are more than a snapshot may have.")
	case errors.Is(err, ErrSnapshotStoreFull):
		return refuse(http.StatusInsufficientStorage, "There is no room for another snapshot here.")
	case errors.Is(err, ErrSnapshotLimit):
		return &refusal{status: http.StatusTooManyRequests, message: "The limit of snapshots of this team or API key is reached: delete one.", noRetry: true}
	case errors.Is(err, ErrSnapshotting):
		return refuse(http.StatusConflict, fmt.Sprintf("The files of sandbox %s are being read already", callOf(r).sandboxID))
	case secretRefusal(err) != nil:
		return secretRefusal(err)
	case errors.Is(err, ErrNoBuild):
		return noSuchBuild()
	case errors.Is(err, ErrBuildStarted):
		return refuse(http.StatusConflict, "The build was started before.")
	case errors.Is(err, ErrUploadRefused):
		return refuse(http.StatusForbidden, "The URL of this upload is over, or is for other files.")
	case errors.Is(err, ErrUploadTooLarge):
		return refuse(http.StatusRequestEntityTooLarge, "The files are more than one upload may have.")
	case errors.Is(err, ErrBuildLimit):
		return &refusal{status: http.StatusTooManyRequests, message: "The limit of builds of this team or API key is reached: delete a template, or wait until one is built.", noRetry: true}
	case errors.Is(err, ErrBuildBytes):
		return &refusal{status: http.StatusTooManyRequests, message: "The templates of this API key have as many bytes as they may: delete one.", noRetry: true}
	case errors.Is(err, ErrUnanswered):
		return &refusal{status: http.StatusServiceUnavailable, message: "The sandbox does not answer.", retryAfter: time.Second}
	case errors.As(err, &noStart):
		return &refusal{status: http.StatusServiceUnavailable, message: "The template's pods cannot start: " + noStart.Reason + ". The condition Available of its SandboxPool says why.", retryAfter: 5 * time.Second}
	case errors.Is(err, ErrNoCapacity):
		return &refusal{status: http.StatusServiceUnavailable, message: "No sandbox is free at the moment.", retryAfter: 5 * time.Second}
	case errors.Is(err, ErrManyWait):
		return &refusal{status: http.StatusTooManyRequests, message: "Too many requests of the team are waiting for a sandbox at this gateway. Try again in a moment.", retryAfter: time.Second}
	case errors.Is(err, ErrBusy):
		return &refusal{status: http.StatusServiceUnavailable, message: "Too many requests at once. Try again in a moment.", retryAfter: time.Second}
	case errors.Is(err, ErrQuota):
		return &refusal{status: http.StatusTooManyRequests, message: "The limit of sandboxes is reached.", retryAfter: 5 * time.Second}
	case errors.Is(err, ErrPausedLimit):
		return &refusal{status: http.StatusTooManyRequests, message: "The limit of paused sandboxes of this template is reached: resume or kill one.", noRetry: true}
	case errors.Is(err, ErrInvalid):
		var invalid *InvalidError
		if errors.As(err, &invalid) {
			return refuse(http.StatusBadRequest, "Invalid sandbox: "+invalid.Reason)
		}
		return refuse(http.StatusBadRequest, "Invalid sandbox")
	case errors.Is(err, errKeysNotReady):
		return &refusal{status: http.StatusServiceUnavailable, message: "The API keys are not known yet.", retryAfter: time.Second}
	case errors.Is(err, context.DeadlineExceeded):
		return refuse(http.StatusGatewayTimeout, "This took too long and was given up.")
	}
	id := requestid.Of(r)
	s.o.Log.Error("a request to the REST API failed", "request", id, "route", callOf(r).route.Name(), "err", err)
	switch e = internal(id); {
	case errors.Is(err, ErrOutcomeUnknown):
		e.noRetry = true
	case errors.Is(err, syscall.ECONNREFUSED): // nothing was sent
		e = refuse(http.StatusServiceUnavailable, "The control plane cannot be reached; this error's ID in the log is "+id)
		e.retryAfter = time.Second
	}
	return e
}

// seconds rounds up, so that no client comes back too early.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// writeJSON answers with a body.
func writeJSON(w http.ResponseWriter, status int, body any) {
	writeBytes(w, status, encode(body))
}

func writeBytes(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	// The client may be gone: an error of the write is of no use to anything.
	_, _ = w.Write(body)
}
